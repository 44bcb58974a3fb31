//! Properties of datasets, as `packstone_fs` defines them, for the command line.
//!
//! A dataset keeps only what was set; defaults are filled in for people.

use packstone_fs::DatasetProperties;
use std::collections::BTreeMap;

/// Checks names and values; the result holds the values in the form they are shown.
pub fn validate(changes: &BTreeMap<String, String>) -> anyhow::Result<BTreeMap<String, String>> {
    let properties = DatasetProperties::parse(changes)?;
    Ok(changes
        .iter()
        .map(|(name, value)| {
            (
                name.clone(),
                properties.get(name).unwrap_or_else(|| value.clone()),
            )
        })
        .collect())
}

/// What is set, with the defaults of what is not. A stored value that this version does not know is shown as it is.
pub fn with_defaults(set: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let defaults = DatasetProperties::default();
    let mut all = set.clone();
    for name in DatasetProperties::NAMES {
        if let Some(value) = defaults.get(name) {
            all.entry(name.to_string()).or_insert(value);
        }
    }
    all
}
