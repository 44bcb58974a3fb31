//! The user's own shell command, run in the arm's empty directory.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::Workload;
use crate::turn::{Processes, Turn, Work};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    #[serde(rename = "kind")]
    _kind: String,
    run: String,
}

pub(super) fn from_table(table: &toml::Table) -> Result<Box<dyn Workload>> {
    let parameters: Parameters = table.clone().try_into()?;
    Ok(Box::new(parameters))
}

impl Workload for Parameters {
    fn check(&self) -> Result<()> {
        ensure!(!self.run.trim().is_empty(), "run is empty: give a shell command");
        Ok(())
    }

    fn storage_bytes(&self) -> u64 {
        0
    }

    fn run(&self, turn: &mut dyn Turn) -> Result<()> {
        let directory = turn.place().directory().to_owned();
        let seed = turn.seed().to_string();
        let processes = Processes {
            server_pids: vec![std::process::id() as i32],
        };
        turn.measure("run", &processes, true, &mut || {
            let status = Command::new("sh")
                .args(["-c", &self.run])
                .current_dir(&directory)
                .env("SEED", &seed)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .status()
                .context("cannot run sh")?;
            ensure!(status.success(), "the command ended with {status}");
            Ok(Work {
                operations: 0,
                operation: "run",
            })
        })?;
        Ok(())
    }
}
