//! Reading nodes through the caches: the record table by location, dataset trees by record id.

use crate::btree::{NodeStore, Root, lookup};
use crate::cache::{Caches, PlaceKey};
use crate::encoding::{Malformed, Reader, put_varint};
use crate::error::{Error, ErrorKind, Result};
use crate::geometry::Geometry;
use crate::node::{NODE_RAW_BYTES_MAX, Node};
use crate::types::{Location, RecordId};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Reads and verifies the frame at a location.
pub(crate) fn read_frame(geometry: &Geometry, location: &Location) -> Result<Vec<u8>> {
    geometry.check_location(location)?;
    let end = location.offset_bytes + location.packed_bytes;
    let (buffer, skip) = geometry.read(location.segment, location.offset_bytes, end)?;
    let frame = &buffer[skip..skip + location.packed_bytes as usize];
    if packstone_codec::checksum(frame) != location.checksum {
        return Err(Error::damaged(
            "read record",
            format!("the bytes at {location} fail their checksum"),
        ));
    }
    Ok(frame.to_vec())
}

/// Unpacks a verified frame.
pub(crate) fn unpack(frame: &[u8], raw_bytes_max: u32) -> Result<Vec<u8>> {
    packstone_codec::unpack(frame, raw_bytes_max).map_err(|e| Error::damaged("unpack record", e.to_string()))
}

pub(crate) fn read_node(geometry: &Geometry, location: &Location) -> Result<Arc<Node>> {
    try_read_node(geometry, location).inspect_err(|error| count_damage(geometry, error))
}

/// Reads a node that may have been written over, so that no damage is counted.
pub(crate) fn try_read_node(geometry: &Geometry, location: &Location) -> Result<Arc<Node>> {
    let frame = read_frame(geometry, location)?;
    Node::decode(&unpack(&frame, NODE_RAW_BYTES_MAX)?)
        .map(Arc::new)
        .map_err(|m| Error::malformed("read tree node", &format!("the node at {location}"), m))
}

pub(crate) fn count_damage(geometry: &Geometry, error: &Error) {
    if error.kind() == ErrorKind::Damaged {
        geometry.damaged_nodes.fetch_add(1, Ordering::Relaxed);
    }
}

/// Nodes of the record table, named by where they lie.
pub(crate) struct TableStore<'a> {
    pub geometry: &'a Geometry,
    pub caches: &'a Caches,
}

impl NodeStore for TableStore<'_> {
    type Pointer = Location;

    fn decode_pointer(value: &[u8]) -> std::result::Result<Location, Malformed> {
        Location::decode(&mut Reader::new(value))
    }

    fn encode_pointer(pointer: &Location) -> Vec<u8> {
        let mut out = Vec::with_capacity(24);
        pointer.encode(&mut out);
        out
    }

    fn load(&self, pointer: &Location) -> Result<Arc<Node>> {
        let key = PlaceKey::from(pointer);
        if let Some(node) = self.caches.table_nodes.get(&key) {
            return Ok(node);
        }
        let node = read_node(self.geometry, pointer).map_err(|error| error.within("record table"))?;
        self.caches.table_nodes.insert(key, node.clone());
        Ok(node)
    }
}

/// Key of a record in the table.
pub(crate) fn table_key(id: RecordId) -> [u8; 8] {
    id.0.to_be_bytes()
}

/// Where the table on media has a record.
pub(crate) fn locate<S: NodeStore<Pointer = Location>>(
    store: &S,
    root: Option<&Root<Location>>,
    id: RecordId,
) -> Result<Option<Location>> {
    let Some(value) = lookup(store, root, &table_key(id))? else {
        return Ok(None);
    };
    decode_location(&value).map(Some)
}

pub(crate) fn decode_location(value: &[u8]) -> Result<Location> {
    Location::decode(&mut Reader::new(value))
        .map_err(|m| Error::malformed("read record table", "an entry", m))
}

/// Nodes of dataset trees, named by record id.
pub(crate) struct TreeStore<'a> {
    pub table: TableStore<'a>,
    pub table_root: Option<Root<Location>>,
}

impl TreeStore<'_> {
    pub(crate) fn locate_node(&self, id: RecordId) -> Result<Location> {
        locate(&self.table, self.table_root.as_ref(), id)?.ok_or_else(|| {
            Error::damaged(
                "read tree node",
                format!("node record {} is not in the record table", id.0),
            )
        })
    }
}

impl NodeStore for TreeStore<'_> {
    type Pointer = RecordId;

    fn decode_pointer(value: &[u8]) -> std::result::Result<RecordId, Malformed> {
        Reader::new(value).varint().map(RecordId)
    }

    fn encode_pointer(pointer: &RecordId) -> Vec<u8> {
        let mut out = Vec::with_capacity(6);
        put_varint(&mut out, pointer.0);
        out
    }

    fn load(&self, pointer: &RecordId) -> Result<Arc<Node>> {
        if let Some(node) = self.table.caches.tree_nodes.get(pointer) {
            return Ok(node);
        }
        let node = read_node(self.table.geometry, &self.locate_node(*pointer)?)
            .map_err(|error| error.within(&format!("tree node {}", pointer.0)))?;
        self.table.caches.tree_nodes.insert(*pointer, node.clone());
        Ok(node)
    }
}
