//! The catalog: the pool's own tree, which holds datasets, properties of the pool, and the roots of all other trees.
//!
//! | key | value |
//! |---|---|
//! | `d` name | varint tree, state (0 active, 1 destroying), varint number of properties, then name and value of each |
//! | `p` | properties of the pool, in the same form |
//! | `t` tree (4 bytes, big endian) | 0, or 1 with level and varint record id of the root node; varint logical bytes, packed bytes, records, node bytes |
//!
//! Datasets and properties are put by transactions like any data; entries `t` are written by checkpoints.

use crate::btree::Root;
use crate::encoding::{Malformed, Reader, put_bytes, put_varint};
use crate::error::{Error, ErrorKind, Result};
use crate::pool::Pool;
use crate::state::Counters;
use crate::types::{RecordId, TreeId};
use std::collections::BTreeMap;
use std::ops::Bound;

const DATASET: u8 = b'd';
const PROPERTIES: u8 = b'p';
const ROOT: u8 = b't';

/// Properties by name. What names and values mean is the business of the crates above.
pub type Properties = BTreeMap<String, String>;

/// Whether a dataset can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatasetState {
    /// Can be mounted.
    Active,
    /// Being emptied by `fs`; cannot be mounted.
    Destroying,
}

/// A tree with a name and properties.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dataset {
    /// Name below the pool, without the pool's.
    pub name: String,
    /// The tree that holds its content.
    pub tree: TreeId,
    /// Its properties, as set.
    pub properties: Properties,
    /// Whether it can be used.
    pub state: DatasetState,
}

/// The property that marks a tree of [`crate::kv::Store`], so that no file system is laid over it.
pub(crate) const KEY_VALUE: (&str, &str) = ("content", "key-value");

impl Dataset {
    /// Holds the pairs of a key-value store rather than files.
    pub fn is_key_value(&self) -> bool {
        self.properties
            .get(KEY_VALUE.0)
            .is_some_and(|content| content == KEY_VALUE.1)
    }
}

/// Totals of one tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeUsage {
    /// Bytes of its records before packing.
    pub logical_bytes: u64,
    /// Packed records, the tree's nodes and its share of the record table.
    pub stored_bytes: u64,
    /// Records.
    pub records: u64,
}

fn dataset_key(name: &str) -> Vec<u8> {
    [&[DATASET], name.as_bytes()].concat()
}

pub(crate) fn root_key(tree: TreeId) -> Vec<u8> {
    [&[ROOT], tree.0.to_be_bytes().as_slice()].concat()
}

fn encode_properties(out: &mut Vec<u8>, properties: &Properties) {
    put_varint(out, properties.len() as u64);
    for (name, value) in properties {
        put_bytes(out, name.as_bytes());
        put_bytes(out, value.as_bytes());
    }
}

fn decode_properties(reader: &mut Reader<'_>) -> std::result::Result<Properties, Malformed> {
    let count = reader.varint()?;
    let mut properties = Properties::new();
    for _ in 0..count {
        let name = String::from_utf8_lossy(reader.bytes()?).into_owned();
        properties.insert(name, String::from_utf8_lossy(reader.bytes()?).into_owned());
    }
    Ok(properties)
}

pub(crate) fn encode_dataset(dataset: &Dataset) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, u64::from(dataset.tree.0));
    out.push(u8::from(dataset.state == DatasetState::Destroying));
    encode_properties(&mut out, &dataset.properties);
    out
}

pub(crate) fn decode_dataset(key: &[u8], value: &[u8]) -> Result<Dataset> {
    let decode = || {
        let mut reader = Reader::new(value);
        let tree = TreeId(reader.varint_u32()?);
        let state = if reader.u8()? == 0 {
            DatasetState::Active
        } else {
            DatasetState::Destroying
        };
        let name = String::from_utf8_lossy(key.get(1..).unwrap_or_default()).into_owned();
        Ok(Dataset {
            name,
            tree,
            properties: decode_properties(&mut reader)?,
            state,
        })
    };
    decode().map_err(|m| Error::malformed("read catalog", "a dataset", m))
}

/// `None` for a tree that holds nothing: it needs no entry.
pub(crate) fn encode_root(root: Option<&Root<RecordId>>, counters: &Counters) -> Option<Vec<u8>> {
    if root.is_none() && *counters == Counters::default() {
        return None;
    }
    let mut out = Vec::new();
    out.push(u8::from(root.is_some()));
    if let Some(root) = root {
        out.push(root.level);
        put_varint(&mut out, root.pointer.0);
    }
    for field in [
        counters.logical_bytes,
        counters.packed_bytes,
        counters.records,
        counters.node_bytes,
    ] {
        put_varint(&mut out, field);
    }
    Some(out)
}

pub(crate) fn decode_root(key: &[u8], value: &[u8]) -> Result<(TreeId, Option<Root<RecordId>>, Counters)> {
    let decode = || {
        let mut tree = [0; 4];
        tree.copy_from_slice(
            key.get(1..5)
                .filter(|_| key.len() == 5)
                .ok_or(Malformed("has a key of the wrong length"))?,
        );
        let mut reader = Reader::new(value);
        let root = match reader.u8()? {
            0 => None,
            _ => Some(Root {
                level: reader.u8()?,
                pointer: RecordId(reader.varint()?),
            }),
        };
        let counters = Counters {
            logical_bytes: reader.varint()?,
            packed_bytes: reader.varint()?,
            records: reader.varint()?,
            node_bytes: reader.varint()?,
        };
        Ok((TreeId(u32::from_be_bytes(tree)), root, counters))
    };
    decode().map_err(|m| Error::malformed("read catalog", "a tree root", m))
}

/// The keys of all tree roots.
pub(crate) fn root_range() -> (Bound<&'static [u8]>, Bound<&'static [u8]>) {
    (Bound::Included(&[ROOT]), Bound::Excluded(&[ROOT + 1]))
}

/// If the pair of a log operation is a dataset: its tree, so that tree numbers are not given out twice after recovery.
pub(crate) fn dataset_tree(tree: TreeId, key: &[u8], value: &[u8]) -> Option<TreeId> {
    let is_dataset = tree == TreeId::CATALOG && key.first() == Some(&DATASET);
    is_dataset
        .then(|| decode_dataset(key, value).ok().map(|dataset| dataset.tree))
        .flatten()
}

impl Pool {
    /// Creates an empty dataset. The caller has validated name and properties.
    pub fn create_dataset(&self, name: &str, properties: Properties) -> Result<Dataset> {
        const OPERATION: &str = "create dataset";
        if name.is_empty() || name.len() > 255 {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                OPERATION,
                "a dataset name has 1 to 255 bytes",
            ));
        }
        let _serial = self.catalog_lock.lock();
        if self.get(TreeId::CATALOG, &dataset_key(name))?.is_some() {
            return Err(Error::new(
                ErrorKind::AlreadyExists,
                OPERATION,
                format!("there is a dataset {name} already"),
            ));
        }
        let tree = {
            let mut state = self.state.write();
            let tree = state.next_tree;
            state.next_tree = tree.checked_add(1).ok_or_else(|| {
                Error::damaged(
                    OPERATION,
                    "the catalog says that all tree numbers have been given out",
                )
            })?;
            TreeId(tree)
        };
        let dataset = Dataset {
            name: name.to_owned(),
            tree,
            properties,
            state: DatasetState::Active,
        };
        self.put_dataset(&dataset)?;
        Ok(dataset)
    }

    /// The dataset of that name. `NotFound` if there is none.
    pub fn dataset(&self, name: &str) -> Result<Dataset> {
        let key = dataset_key(name);
        let value = self.get(TreeId::CATALOG, &key)?.ok_or_else(|| {
            Error::new(
                ErrorKind::NotFound,
                "find dataset",
                format!("there is no dataset {name} in pool {}", self.name()),
            )
        })?;
        decode_dataset(&key, &value)
    }

    /// All datasets by name.
    pub fn datasets(&self) -> Result<Vec<Dataset>> {
        let pairs = self.scan(
            TreeId::CATALOG,
            Bound::Included(&[DATASET]),
            Bound::Excluded(&[DATASET + 1]),
            usize::MAX,
        )?;
        pairs
            .iter()
            .map(|(key, value)| decode_dataset(key, value))
            .collect()
    }

    /// Replaces all properties of a dataset; the caller has validated them.
    pub fn set_dataset_properties(&self, name: &str, properties: Properties) -> Result<()> {
        let _serial = self.catalog_lock.lock();
        self.put_dataset(&Dataset {
            properties,
            ..self.dataset(name)?
        })
    }

    /// From now on the dataset can only be emptied.
    pub fn mark_dataset_destroying(&self, name: &str) -> Result<()> {
        let _serial = self.catalog_lock.lock();
        self.put_dataset(&Dataset {
            state: DatasetState::Destroying,
            ..self.dataset(name)?
        })
    }

    /// Forgets a dataset whose tree has been emptied. `Busy` while it holds anything.
    pub fn remove_dataset(&self, name: &str) -> Result<()> {
        let _serial = self.catalog_lock.lock();
        let dataset = self.dataset(name)?;
        if !self
            .scan(dataset.tree, Bound::Unbounded, Bound::Unbounded, 1)?
            .is_empty()
        {
            return Err(Error::new(
                ErrorKind::Busy,
                "remove dataset",
                format!("dataset {name} is not empty yet"),
            ));
        }
        let mut transaction = self.begin();
        transaction.delete(TreeId::CATALOG, &dataset_key(name));
        transaction.may_use_reserve();
        self.commit(transaction).map(drop)
    }

    fn put_dataset(&self, dataset: &Dataset) -> Result<()> {
        let mut transaction = self.begin();
        transaction.put(
            TreeId::CATALOG,
            &dataset_key(&dataset.name),
            &encode_dataset(dataset),
        );
        transaction.may_use_reserve();
        self.commit(transaction).map(drop)
    }

    /// Properties of the pool.
    pub fn properties(&self) -> Result<Properties> {
        match self.get(TreeId::CATALOG, &[PROPERTIES])? {
            Some(value) => decode_properties(&mut Reader::new(&value))
                .map_err(|m| Error::malformed("read catalog", "the pool's properties", m)),
            None => Ok(Properties::new()),
        }
    }

    /// Replaces all properties of the pool; the caller has validated them.
    pub fn set_properties(&self, properties: Properties) -> Result<()> {
        let mut value = Vec::new();
        encode_properties(&mut value, &properties);
        let mut transaction = self.begin();
        transaction.put(TreeId::CATALOG, &[PROPERTIES], &value);
        transaction.may_use_reserve();
        self.commit(transaction).map(drop)
    }
}
