//! A way in for fuzzers: what users type and what comes over the control socket. Only with the feature `fuzzing`.

use crate::control::{ErrorReply, server};
use crate::names::{DatasetName, PoolName, parse_assignments, parse_size};
use crate::pool_properties;
use std::collections::BTreeMap;

/// A request of the control socket: a query, a line feed, a body.
pub fn control_request(bytes: &[u8]) -> bool {
    let end = bytes
        .iter()
        .position(|byte| *byte == b'\n')
        .unwrap_or(bytes.len());
    let query = String::from_utf8_lossy(&bytes[..end]);
    let body = bytes.get(end + 1..).unwrap_or_default();
    let is_error = serde_json::from_slice::<ErrorReply>(body).is_ok();
    server::understand(&query, body) || is_error
}

/// A size, a pool's and a dataset's name, assignments: the same text as each of them.
pub fn typed(text: &str) -> bool {
    let mut understood = false;
    if let Ok(size_bytes) = parse_size(text) {
        assert_eq!(parse_size(&size_bytes.to_string()).ok(), Some(size_bytes));
        let memory = BTreeMap::from([("memory".to_string(), text.to_string())]);
        if let Ok(stored) = pool_properties::validate(&memory) {
            assert_eq!(
                stored.get("memory").and_then(|size| parse_size(size).ok()),
                Some(size_bytes)
            );
        }
        understood = true;
    }
    if let Ok(name) = text.parse::<PoolName>() {
        assert_eq!(name.as_str(), text);
        understood = true;
    }
    if let Ok(name) = text.parse::<DatasetName>() {
        assert_eq!(name.to_string(), text);
        understood = true;
    }
    let lines: Vec<String> = text.lines().map(str::to_string).collect();
    understood | parse_assignments(&lines).is_ok_and(|assignments| !assignments.is_empty())
}
