//! `packstone inspect`: prints structures as they are on the media. Every structure has a printer in the pool.
//!
//! Works on a registered pool, or on the path of a member that is not registered, so that a damaged or strange image can
//! be looked at without importing it.

use crate::failure::Failure;
use crate::lock::{LockMode, PoolLock};
use crate::member;
use crate::names::PoolName;
use crate::state::StateDirectory;
use anyhow::Context;
use packstone_media::{Access, Media};
use packstone_pool::inspect::{Field, Item, Target, inspect};
use packstone_pool::{OpenOptions, Pool, RecordId, SegmentId, TreeId};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// What `inspect` takes.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:
  packstone inspect tank label
  packstone inspect tank checkpoints
  packstone inspect tank segment 3
  packstone inspect tank tree pg
  packstone inspect --json tank table         one JSON object a line
  packstone inspect /srv/tank.pack label      a member that is not registered

The pool must not be open. Nothing is written.",
    disable_help_subcommand = true
)]
pub struct Arguments {
    /// Name of a pool, or path of a member
    #[arg(value_name = "POOL|MEMBER")]
    target: String,
    /// Print facts as JSON, one object a line
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Identity and geometry
    #[command(after_help = "Examples:\n  packstone inspect tank label")]
    Label,
    /// The ring of checkpoint slots
    #[command(after_help = "Examples:\n  packstone inspect tank checkpoints")]
    Checkpoints,
    /// State and use of every segment
    #[command(after_help = "Examples:\n  packstone inspect tank segments")]
    Segments,
    /// The batches of one segment
    #[command(after_help = "Examples:\n  packstone inspect tank segment 3")]
    Segment {
        /// Number of the segment
        index: u32,
    },
    /// The record table
    #[command(after_help = "Examples:\n  packstone inspect tank table")]
    Table,
    /// A tree, by the name of its dataset or by number
    #[command(after_help = "Examples:\n  packstone inspect tank tree pg\n  packstone inspect tank tree 2")]
    Tree {
        /// Name of a dataset, or number of a tree
        tree: String,
    },
    /// One record
    #[command(after_help = "Examples:\n  packstone inspect tank record 1234")]
    Record {
        /// Id of the record
        id: u64,
    },
}

/// Prints.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let (_lock, members) = open_members(&arguments.target)?;
    let target = match &arguments.what {
        What::Label => Target::Label,
        What::Checkpoints => Target::Checkpoints,
        What::Segments => Target::Segments,
        What::Segment { index } => Target::Segment(SegmentId(*index)),
        What::Table => Target::Table,
        What::Tree { tree } => Target::Tree(find_tree(tree, &members)?),
        What::Record { id } => Target::Record(RecordId(*id)),
    };
    let mut out = io::BufWriter::new(io::stdout().lock());
    let json = arguments.json;
    let printed = inspect(&members, target, &mut |item| {
        let written = match json {
            true => writeln!(out, "{}", as_json(item)),
            false => out.write_all(item.text.as_bytes()),
        };
        match written {
            // Whoever reads has seen enough, as 'head' has.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
            other => other,
        }
    });
    printed.with_context(|| format!("inspect {}", arguments.target))?;
    out.flush().context("print")
}

/// One line a thing, so that a table of any size can be read as it comes.
fn as_json(item: Item) -> serde_json::Value {
    let mut object = serde_json::Map::new();
    object.insert("kind".to_string(), item.kind.into());
    for (name, field) in item.fields {
        let value = match field {
            Field::Number(number) => number.into(),
            Field::Text(text) => text.into(),
        };
        object.insert(name.to_string(), value);
    }
    object.into()
}

type Members = Vec<Arc<dyn Media>>;

fn open_members(target: &str) -> anyhow::Result<(Option<PoolLock>, Members)> {
    if target.contains('/') {
        return Ok((None, vec![member::open(Path::new(target), Access::ReadOnly)?]));
    }
    let name: PoolName = target.parse()?;
    let state = StateDirectory::locate()?;
    let entry = state.entry(&name)?;
    let lock = PoolLock::acquire(&state, &name, LockMode::Shared, Duration::from_secs(2))?;
    Ok((Some(lock), member::open_all(&entry, Access::ReadOnly)?))
}

fn find_tree(tree: &str, members: &Members) -> anyhow::Result<TreeId> {
    if let Ok(number) = tree.parse() {
        return Ok(TreeId(number));
    }
    let options = OpenOptions {
        read_only: true,
        memory_bytes: None,
        ..OpenOptions::default()
    };
    let pool = Pool::open(members.clone(), &options).context("find the dataset")?;
    let dataset = tree.rsplit('/').next().unwrap_or(tree);
    match pool.dataset(dataset) {
        Ok(found) => Ok(found.tree),
        Err(error) if error.kind() == packstone_pool::ErrorKind::NotFound => Err(Failure::not_found(
            format!("there is no dataset '{}' in this pool", dataset.escape_debug()),
        )),
        Err(error) => Err(error.into()),
    }
}
