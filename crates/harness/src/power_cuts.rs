//! PostgreSQL on a mount whose power is cut again and again.
//!
//! ```text
//!   load ──► cut ──► [packstone check] ──► mount ──► start ──► verify ──► load ...
//!                        cut ◄──┘ may come in the middle of ──┘
//! ```
//!
//! A [`Rig`] is a pool, a mount, a server, a ledger of transactions and one of bulk steps. One cycle lets the load run for
//! a random time, kills the server, the daemon or both, in either order and with or without a gap, sometimes kills again
//! while the mount recovers or the server does, and then looks at everything that was acknowledged. On a lossy member the
//! death of the daemon is a power cut; the server's `full_page_writes` is off, so every page write has to be atomic.
//!
//! A seed repeats what is done and when, though not how far the machine got by then.

use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::Serialize;

use crate::bulk::{BulkLedger, BulkLoad};
use crate::cluster::Cluster;
use crate::diagnosis;
use crate::events::Draw;
use crate::fixture::{DATASET, Mounted};
use crate::ledger::{self, Ledger, Load};
use crate::packstone::{self, Member, Pool};
use crate::process;

const CLIENTS: usize = 4;
/// The ledger begins a new page above so many transactions, so that cycles stay quick.
const PAGE_TRANSACTIONS: usize = 30_000;

/// A cycle takes seconds, on a very busy machine perhaps a minute.
const CYCLE_LIMIT: Duration = Duration::from_secs(240);

/// Who dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Victims {
    /// The server, under a daemon that lives on.
    Server,
    /// The daemon; the server sees its file system die, and is killed a while later.
    DaemonThenServer,
    /// The server, and a moment later the daemon.
    ServerThenDaemon,
    /// Both as nearly at once as it can be done.
    Both,
}

/// What is done in one cycle, drawn before it begins.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Plan {
    /// How long the load runs before the cut.
    pub load_ms: u64,
    /// Who dies.
    pub victims: Victims,
    /// Between the first death and the second.
    pub gap_ms: u64,
    /// The daemon is killed again so long after a mount was asked for, in the middle of its recovery or just after.
    pub cut_mount_after_ms: Option<u64>,
    /// Daemon and server are killed again so long after the server was started, in the middle of its recovery or just
    /// after.
    pub cut_start_after_ms: Option<u64>,
}

impl Plan {
    fn draw(draw: &mut Draw) -> Plan {
        let victims = match draw.below(10) {
            0 => Victims::Server,
            1..=3 => Victims::DaemonThenServer,
            4..=6 => Victims::ServerThenDaemon,
            _ => Victims::Both,
        };
        let gap_ms = match draw.below(3) {
            0 => 0,
            1 => draw.below(50),
            _ => draw.below(600),
        };
        let kills_daemon = victims != Victims::Server;
        Plan {
            load_ms: 400 + draw.below(2_400),
            victims,
            gap_ms,
            cut_mount_after_ms: (draw.below(4) == 0 && kills_daemon).then(|| 1 + draw.below(250)),
            cut_start_after_ms: (draw.below(4) == 0).then(|| 1 + draw.below(700)),
        }
    }
}

/// What one cycle did and found.
#[derive(Clone, Debug, Serialize)]
pub struct Cycle {
    /// Counted from 1.
    pub number: u64,
    /// What was to be done.
    pub plan: Plan,
    /// Times a daemon was killed.
    pub daemon_kills: u64,
    /// Times a server was killed.
    pub server_kills: u64,
    /// Transactions that were acknowledged in this cycle.
    pub transactions: usize,
    /// Of those found, how many nobody had been told of yet.
    pub adopted: usize,
    /// Bulk steps that were acknowledged in this cycle.
    pub bulk_steps: u64,
    /// `packstone check` on the pool as the cut left it, and the whole of it after a clean end.
    pub checked: bool,
    /// Length of the cycle.
    pub seconds: f64,
}

/// A pool, a mount and a server that live through power cuts.
pub struct Rig {
    mounted: Mounted,
    cluster: Cluster,
    ledger: Arc<Ledger>,
    bulk: Arc<BulkLedger>,
    draw: Draw,
    cycles: u64,
}

impl Rig {
    /// Makes everything in a scratch directory in `parent`; the server runs when this returns.
    pub fn new(parent: &Path, size: &str, member: Member, seed: u64) -> Result<Rig> {
        let (mounted, cluster) = Mounted::with_postgres_in(parent, size, member)?;
        let shown = mounted.pool.run(["status", &mounted.pool.name])?;
        ensure!(
            shown.contains("lossy: for tests only") == (member != Member::Plain),
            "the daemon works on another kind of member than was asked for:\n{shown}"
        );
        let cluster = busy(cluster);
        cluster.start_with(&mounted.cleanup)?;
        let mut database = cluster.connect("postgres")?;
        for (setting, wanted) in [
            ("full_page_writes", "off"),
            ("data_checksums", "on"),
            ("fsync", "on"),
        ] {
            let value: String = database.query_one(&format!("SHOW {setting}"), &[])?.get(0);
            ensure!(
                value == wanted,
                "packstone postgres create left {setting} = {value}"
            );
        }
        ledger::create_tables(&mut database)?;
        let ledger = Ledger::new(CLIENTS, &mounted.home.join("ledger"))?;
        Ok(Rig {
            mounted,
            cluster,
            ledger,
            bulk: Arc::default(),
            draw: Draw::new(seed),
            cycles: 0,
        })
    }

    /// Undoes what was made, also after an interrupt.
    pub fn cleanup(&self) -> &crate::scratch::Cleanup {
        &self.mounted.cleanup
    }

    /// One cycle. The error of one that fails holds what could be found out.
    pub fn cycle(&mut self, check: bool) -> Result<Cycle> {
        self.cycles += 1;
        let plan = Plan::draw(&mut self.draw);
        let watchdog = Watchdog::start(&self.mounted.pool, &self.cluster);
        let outcome = self.run(plan, check);
        let hung = watchdog.stop();
        if outcome.is_ok() && hung.is_none() {
            return outcome;
        }
        let found = hung.unwrap_or_else(|| diagnosis::describe(&self.mounted.pool, &self.cluster));
        let error = outcome.err().unwrap_or_else(|| anyhow!("it took too long"));
        Err(anyhow!("cycle {}: {error:#}\n{plan:?}\n{found}", self.cycles))
    }

    fn run(&mut self, plan: Plan, check: bool) -> Result<Cycle> {
        let start = Instant::now();
        let before = (self.ledger.transactions(), self.bulk.steps());
        let mut cycle = Cycle {
            number: self.cycles,
            plan,
            daemon_kills: 0,
            server_kills: 0,
            transactions: 0,
            adopted: 0,
            bulk_steps: 0,
            checked: check,
            seconds: 0.0,
        };
        let load = Load::start(&self.cluster, &self.ledger, self.draw.bits());
        let bulk = BulkLoad::start(&self.cluster, &self.bulk, self.draw.bits());
        std::thread::sleep(Duration::from_millis(plan.load_ms));
        self.cut(plan, &mut cycle)?;
        let ends = load.join_after_crash();
        ensure!(
            ends.len() == CLIENTS,
            "only {} of {CLIENTS} clients noticed the crash",
            ends.len()
        );
        // A bulk client whose last step was just done when it was told to stop has seen no error.
        bulk.join_after_crash()?;
        cycle.transactions = self.ledger.transactions() - before.0;
        cycle.bulk_steps = self.bulk.steps() - before.1;
        if check && !self.daemon_lives() {
            packstone::detach(&self.mounted.mountpoint)?;
            self.mounted
                .pool
                .check()
                .context("packstone check of the pool as the cut left it")?;
        }
        self.come_back(plan, &mut cycle)?;
        cycle.adopted = self.verify()?;
        if check {
            self.rest().context("a clean end, and what it left")?;
        }
        cycle.seconds = start.elapsed().as_secs_f64();
        Ok(cycle)
    }

    fn cut(&self, plan: Plan, cycle: &mut Cycle) -> Result<()> {
        let gap = || std::thread::sleep(Duration::from_millis(plan.gap_ms));
        match plan.victims {
            Victims::Server => self.kill_server(cycle),
            Victims::DaemonThenServer => {
                self.kill_daemon(cycle)?;
                gap();
                self.kill_server(cycle)
            }
            Victims::ServerThenDaemon => {
                self.kill_server(cycle)?;
                gap();
                self.kill_daemon(cycle)
            }
            Victims::Both => {
                // The signal to the daemon is sent before anything is waited for.
                process::kill_hard(self.mounted.pool.daemon_pid()?);
                self.kill_server(cycle)?;
                process::wait_until(Duration::from_secs(60), "the daemon to end", || {
                    !self.daemon_lives()
                })?;
                cycle.daemon_kills += 1;
                Ok(())
            }
        }
    }

    fn kill_daemon(&self, cycle: &mut Cycle) -> Result<()> {
        cycle.daemon_kills += 1;
        self.mounted.pool.kill_daemon()
    }

    fn kill_server(&self, cycle: &mut Cycle) -> Result<()> {
        cycle.server_kills += 1;
        self.cluster.kill_hard()
    }

    fn daemon_lives(&self) -> bool {
        !self.mounted.pool.daemon_pids().is_empty()
    }

    /// Mounts and starts again, with the further cuts that were planned.
    fn come_back(&self, plan: Plan, cycle: &mut Cycle) -> Result<()> {
        if let Some(after_ms) = plan.cut_mount_after_ms {
            self.cut_a_mount(after_ms, cycle)?;
        }
        self.mount()?;
        if let Some(after_ms) = plan.cut_start_after_ms {
            self.cluster.begin_start()?;
            std::thread::sleep(Duration::from_millis(after_ms));
            let again = Plan {
                victims: match plan.victims {
                    Victims::Server => Victims::Both,
                    other => other,
                },
                ..plan
            };
            self.cut(again, cycle)?;
            self.mount()?;
        }
        self.cluster.start().context("start after the crash")
    }

    /// Mounts, unless the daemon has lived on.
    fn mount(&self) -> Result<()> {
        if self.daemon_lives() {
            return Ok(());
        }
        if packstone::is_mounted(&self.mounted.mountpoint) {
            packstone::detach(&self.mounted.mountpoint)?;
        }
        self.mounted
            .pool
            .mount_again(DATASET, &self.mounted.mountpoint)
            .context("mount after the crash")
    }

    /// Asks for a mount and kills whoever is at work on it.
    fn cut_a_mount(&self, after_ms: u64, cycle: &mut Cycle) -> Result<()> {
        let (pool, mountpoint) = (&self.mounted.pool, &self.mounted.mountpoint);
        if packstone::is_mounted(mountpoint) {
            packstone::detach(mountpoint)?;
        }
        std::thread::scope(|scope| {
            // It fails if it is killed, and does not if it was quick enough; both are well.
            let asking = scope.spawn(|| pool.mount_again(DATASET, mountpoint));
            std::thread::sleep(Duration::from_millis(after_ms));
            let deadline = Instant::now() + Duration::from_secs(60);
            loop {
                let pids = pool.daemon_pids();
                for pid in &pids {
                    process::kill_hard(*pid);
                }
                process::wait_ended(&pids, Duration::from_secs(60))?;
                // A daemon that was just being started is found in the next round.
                if asking.is_finished() && pool.daemon_pids().is_empty() {
                    break;
                }
                if Instant::now() > deadline {
                    bail!("packstone mount does not end although it is killed");
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            cycle.daemon_kills += 1;
            Ok(())
        })
    }

    /// Everything that was acknowledged is there, and every index agrees with its table.
    fn verify(&self) -> Result<usize> {
        let mut database = self.cluster.connect("postgres")?;
        let adopted = self.ledger.verify(&mut database)?;
        self.bulk.verify(&mut database)?;
        self.cluster.amcheck_tables().context("pg_amcheck")?;
        if self.ledger.transactions() > PAGE_TRANSACTIONS {
            self.ledger.start_over(&mut database)?;
        }
        Ok(adopted)
    }

    /// Stops and unmounts as one should, looks at every page and every record, and comes back.
    fn rest(&self) -> Result<()> {
        self.end()?;
        self.mounted.pool.mount_again(DATASET, &self.mounted.mountpoint)?;
        self.cluster.start()
    }

    fn end(&self) -> Result<()> {
        self.cluster.amcheck().context("pg_amcheck")?;
        self.cluster.stop()?;
        self.cluster.verify_checksums().context("pg_checksums")?;
        self.mounted.finish().context("packstone check")
    }

    /// The last look: all databases, all pages, all records.
    pub fn finish(self) -> Result<()> {
        self.end()
    }
}

/// Sees to it that a cycle ends. When one takes too long, it looks at what hangs and then kills it, so that everybody who
/// waits gets an error.
struct Watchdog {
    done: mpsc::Sender<()>,
    thread: std::thread::JoinHandle<Option<String>>,
}

impl Watchdog {
    fn start(pool: &Pool, cluster: &Cluster) -> Watchdog {
        let (done, waiting) = mpsc::channel();
        let (pool, cluster) = (pool.clone(), cluster.clone());
        let thread = std::thread::spawn(move || {
            if waiting.recv_timeout(CYCLE_LIMIT) != Err(mpsc::RecvTimeoutError::Timeout) {
                return None;
            }
            let found = diagnosis::describe(&pool, &cluster);
            pool.daemon_pids().into_iter().for_each(process::kill_hard);
            // What is left of the server shows in the cycle's own error.
            let _ = cluster.kill_hard();
            Some(format!(
                "it had not ended after {} s, so everything was killed; before that:\n{found}",
                CYCLE_LIMIT.as_secs()
            ))
        });
        Watchdog { done, thread }
    }

    /// What hung, if anything did.
    fn stop(self) -> Option<String> {
        drop(self.done);
        self.thread
            .join()
            .unwrap_or_else(|_| Some("the watchdog panicked".to_owned()))
    }
}

/// Checkpoints, vacuums and segment switches happen all the time, so that cuts fall into them too.
pub fn busy(cluster: Cluster) -> Cluster {
    cluster
        .with_setting("checkpoint_timeout", "30s")
        .with_setting("max_wal_size", "64MB")
        .with_setting("min_wal_size", "32MB")
        .with_setting("shared_buffers", "16MB")
        .with_setting("autovacuum_naptime", "2s")
        .with_setting("bgwriter_delay", "20ms")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_hold_every_kind_of_cut_and_repeat() {
        let plans = |seed| {
            let mut draw = Draw::new(seed);
            (0..200)
                .map(|_| format!("{:?}", Plan::draw(&mut draw)))
                .collect::<Vec<_>>()
        };
        assert_eq!(plans(7), plans(7));
        let all = plans(7).join("\n");
        for kind in ["Server,", "DaemonThenServer", "ServerThenDaemon", "Both"] {
            assert!(all.contains(&format!("victims: {kind}")), "{kind}");
        }
        assert!(all.contains("cut_mount_after_ms: Some") && all.contains("cut_start_after_ms: Some"));
    }
}
