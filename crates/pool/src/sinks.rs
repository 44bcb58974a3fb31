//! Writing nodes during a checkpoint: dataset trees under record ids, the record table under places.
//!
//! Nodes written by the checkpoint at work are found in the sink itself: neither the media nor the caches have them
//! before the checkpoint is published.

use crate::batch::EntryKind;
use crate::btree::{NodeSink, NodeStore};
use crate::cache::PlaceKey;
use crate::encoding::Malformed;
use crate::error::Result;
use crate::node::Node;
use crate::node_writer::NodeWriter;
use crate::overlay::FixedState;
use crate::stores::{TableStore, TreeStore};
use crate::types::{Location, RecordId, TreeId};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Nodes of dataset trees: new places by record id (`None`: the node is gone), and the nodes themselves.
#[derive(Default)]
pub(crate) struct NodeChanges {
    pub places: BTreeMap<RecordId, Option<Location>>,
    pub nodes: HashMap<RecordId, Arc<Node>, FixedState>,
}

pub(crate) struct TreeSink<'a, 'w> {
    pub store: TreeStore<'a>,
    pub tree: TreeId,
    pub writer: &'a mut NodeWriter<'w>,
    pub changes: &'a mut NodeChanges,
    pub next_record: &'a AtomicU64,
    /// Change of the packed bytes of this tree's nodes.
    pub bytes_delta: i64,
}

impl TreeSink<'_, '_> {
    /// Gives up the place a node had before.
    fn release_place(&mut self, id: RecordId) -> Result<()> {
        let place = match self.changes.places.get(&id) {
            Some(place) => *place,
            None => Some(self.store.locate_node(id)?),
        };
        if let Some(location) = place {
            self.writer.release(&location);
            self.bytes_delta -= i64::from(location.packed_bytes);
        }
        Ok(())
    }

    /// Writes a node that did not change to a new place.
    pub(crate) fn relocate(&mut self, id: RecordId) -> Result<()> {
        let node = self.load(&id)?;
        self.write(Node::clone(&node), Some(id)).map(drop)
    }
}

impl NodeStore for TreeSink<'_, '_> {
    type Pointer = RecordId;

    fn decode_pointer(value: &[u8]) -> std::result::Result<RecordId, Malformed> {
        TreeStore::decode_pointer(value)
    }

    fn encode_pointer(pointer: &RecordId) -> Vec<u8> {
        TreeStore::encode_pointer(pointer)
    }

    fn load(&self, pointer: &RecordId) -> Result<Arc<Node>> {
        match self.changes.nodes.get(pointer) {
            Some(node) => Ok(node.clone()),
            None => self.store.load(pointer),
        }
    }
}

impl NodeSink for TreeSink<'_, '_> {
    fn write(&mut self, node: Node, previous: Option<RecordId>) -> Result<RecordId> {
        let id = match previous {
            Some(id) => {
                self.release_place(id)?;
                id
            }
            None => RecordId(self.next_record.fetch_add(1, Ordering::Relaxed)),
        };
        let location = self.writer.append(EntryKind::Node, id, self.tree, node.pack())?;
        self.bytes_delta += i64::from(location.packed_bytes);
        self.changes.places.insert(id, Some(location));
        self.changes.nodes.insert(id, Arc::new(node));
        Ok(id)
    }

    fn release(&mut self, pointer: RecordId) -> Result<()> {
        self.release_place(pointer)?;
        self.changes.places.insert(pointer, None);
        self.changes.nodes.remove(&pointer);
        Ok(())
    }
}

pub(crate) struct TableSink<'a, 'w> {
    pub store: TableStore<'a>,
    pub writer: &'a mut NodeWriter<'w>,
    pub nodes: HashMap<PlaceKey, Arc<Node>, FixedState>,
    pub bytes_delta: i64,
}

impl NodeStore for TableSink<'_, '_> {
    type Pointer = Location;

    fn decode_pointer(value: &[u8]) -> std::result::Result<Location, Malformed> {
        TableStore::decode_pointer(value)
    }

    fn encode_pointer(pointer: &Location) -> Vec<u8> {
        TableStore::encode_pointer(pointer)
    }

    fn load(&self, pointer: &Location) -> Result<Arc<Node>> {
        match self.nodes.get(&PlaceKey::from(pointer)) {
            Some(node) => Ok(node.clone()),
            None => self.store.load(pointer),
        }
    }
}

impl NodeSink for TableSink<'_, '_> {
    fn write(&mut self, node: Node, previous: Option<Location>) -> Result<Location> {
        if let Some(previous) = previous {
            self.release(previous)?;
        }
        let mut first = [0; 8];
        let key = node.key(0);
        let length = key.len().min(8);
        first[..length].copy_from_slice(&key[..length]);
        let (id, level) = (
            RecordId(u64::from_be_bytes(first)),
            TreeId(u32::from(node.level())),
        );
        let location = self.writer.append(EntryKind::TableNode, id, level, node.pack())?;
        self.bytes_delta += i64::from(location.packed_bytes);
        self.nodes.insert(PlaceKey::from(&location), Arc::new(node));
        Ok(location)
    }

    fn release(&mut self, pointer: Location) -> Result<()> {
        self.writer.release(&pointer);
        self.bytes_delta -= i64::from(pointer.packed_bytes);
        self.nodes.remove(&PlaceKey::from(&pointer));
        Ok(())
    }
}
