//! One PostgreSQL cluster: made, started on a private Unix socket, stopped, killed.
//!
//! The server never listens on the network. Its socket, log and access rules lie in a run directory that only its user
//! can enter, outside the data directory, so that the data directory may be on a file system that is about to die.
//!
//! Leaves out: what is in the data directory's `postgresql.conf`; settings given here win over it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use postgres::{Client, Config, NoTls};

use crate::process::{self, User};
use crate::requirements;
use crate::scratch::Cleanup;

/// The port only names the socket: nothing listens on TCP.
const PORT: u16 = 5432;

/// How long a start may take; it includes the recovery after a crash.
const START_LIMIT_S: u32 = 180;

/// A PostgreSQL cluster that runs, or will.
#[derive(Clone, Debug)]
pub struct Cluster {
    programs: PathBuf,
    data_directory: PathBuf,
    run_directory: PathBuf,
    owner: User,
    settings: Vec<(String, String)>,
}

impl Cluster {
    /// Uses the cluster in `data_directory`, with socket and log in `run_directory`, which is created.
    pub fn on(data_directory: &Path, run_directory: &Path) -> Result<Cluster> {
        let owner = User::for_postgres()?;
        make_private(run_directory, &owner)?;
        // Peer authentication would refuse root's harness connecting as the server's user. The directory of the socket is
        // private to that user, so everyone who reaches the socket may connect.
        let rules = run_directory.join("pg_hba.conf");
        std::fs::write(&rules, "local all all trust\n")
            .with_context(|| format!("cannot write {}", rules.display()))?;
        std::os::unix::fs::chown(&rules, Some(owner.uid), Some(owner.gid))?;
        Ok(Cluster {
            programs: requirements::postgres_programs()?,
            data_directory: data_directory.to_owned(),
            run_directory: run_directory.to_owned(),
            owner,
            settings: Vec::new(),
        })
    }

    /// Makes a new cluster in `data_directory` with data checksums, as `packstone postgres create` does on a pool.
    pub fn create(data_directory: &Path, run_directory: &Path) -> Result<Cluster> {
        let cluster = Cluster::on(data_directory, run_directory)?;
        make_private(data_directory, &cluster.owner)?;
        let mut initdb = cluster.program("initdb");
        initdb.args([
            "--encoding=UTF8",
            "--locale=C.UTF-8",
            "--data-checksums",
            "--auth=trust",
            "-D",
        ]);
        process::run(initdb.arg(data_directory))?;
        Ok(cluster)
    }

    /// Adds a server setting that takes effect at the next start.
    pub fn with_setting(mut self, name: &str, value: &str) -> Cluster {
        self.settings.retain(|(known, _)| known != name);
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Where the tables are.
    pub fn data_directory(&self) -> &Path {
        &self.data_directory
    }

    /// Where socket and log are.
    pub fn run_directory(&self) -> &Path {
        &self.run_directory
    }

    /// Who runs the server.
    pub fn owner(&self) -> &User {
        &self.owner
    }

    /// What the server wrote to its log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    fn log_path(&self) -> PathBuf {
        self.run_directory.join("server.log")
    }

    /// One of PostgreSQL's programs, run as the owner and connecting to this cluster.
    pub fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.programs.join(name));
        self.owner.apply(&mut command);
        command
            .env("PGHOST", &self.run_directory)
            .env("PGPORT", PORT.to_string())
            .env("PGUSER", &self.owner.name)
            .env("PGDATABASE", "postgres")
            .env("LC_ALL", "C.UTF-8")
            .current_dir(&self.run_directory);
        command
    }

    /// Starts the server and waits until it takes connections, recovery included. A failure shows the end of its log.
    pub fn start(&self) -> Result<()> {
        let mut options = format!(
            "-k {} -p {PORT} -c listen_addresses=",
            self.run_directory.display()
        );
        let rules = self.run_directory.join("pg_hba.conf").display().to_string();
        let fixed = [("hba_file".to_owned(), rules)];
        for (name, value) in fixed.iter().chain(&self.settings) {
            options.push_str(&format!(
                " -c {name}={}",
                value.replace('\\', "\\\\").replace(' ', "\\ ")
            ));
        }
        let mut command = self.program("pg_ctl");
        command.args([
            "start",
            "-w",
            "-s",
            "-t",
            &START_LIMIT_S.to_string(),
            "-o",
            &options,
            "-D",
        ]);
        command.arg(&self.data_directory).arg("-l").arg(self.log_path());
        // The server inherits these: a pipe here would stay open, and be waited for, as long as the server runs.
        command
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null());
        let status = command.status().context("cannot run pg_ctl")?;
        if !status.success() {
            bail!(
                "PostgreSQL did not start ({status}); the end of its log:\n{}",
                self.log_tail(30)
            );
        }
        Ok(())
    }

    /// Starts the server, with `cleanup` stopping it.
    pub fn start_with(&self, cleanup: &Cleanup) -> Result<()> {
        let cluster = self.clone();
        cleanup.push("stop PostgreSQL", move || {
            if cluster.postmaster_pid().is_none() {
                return Ok(());
            }
            cluster.stop().or_else(|error| {
                cluster.kill_hard()?;
                Err(error)
            })
        });
        self.start()
    }

    /// Connects once the server takes connections, starting it if it has ended. A server that met an error it cannot live
    /// with may be recovering by itself, may have ended, or may be about to.
    pub fn revive(&self) -> Result<Client> {
        let limit = Duration::from_secs(START_LIMIT_S.into());
        let mut connected = None;
        process::wait_until(limit, "the server to recover", || {
            if self.postmaster_pid().is_none() {
                // A failure shows in the next round; the last one is in the log.
                let _ = self.start();
            }
            connected = self.connect("postgres").ok();
            connected.is_some()
        })
        .with_context(|| format!("the end of the log:\n{}", self.log_tail(20)))?;
        connected.context("no connection")
    }

    /// Stops the server with a checkpoint, disconnecting its clients.
    pub fn stop(&self) -> Result<()> {
        let mut command = self.program("pg_ctl");
        command
            .args(["stop", "-w", "-s", "-m", "fast", "-t", "120", "-D"])
            .arg(&self.data_directory);
        process::run(&mut command).with_context(|| format!("the end of the log:\n{}", self.log_tail(20)))?;
        Ok(())
    }

    /// Id of the server's first process while it runs. Also found when the data directory's file system is dead.
    pub fn postmaster_pid(&self) -> Option<i32> {
        // The lock file beside the socket has the same first line as `postmaster.pid`, and lies outside the pool.
        let lock = self.run_directory.join(format!(".s.PGSQL.{PORT}.lock"));
        let pid: i32 = std::fs::read_to_string(lock)
            .ok()?
            .lines()
            .next()?
            .trim()
            .parse()
            .ok()?;
        let is_server = process::executable(pid).is_some_and(|path| path.ends_with("postgres"));
        (is_server && process::is_running(pid)).then_some(pid)
    }

    /// Processes of the running server: the first one and its children.
    pub fn pids(&self) -> Vec<i32> {
        let Some(postmaster) = self.postmaster_pid() else {
            return Vec::new();
        };
        let mut pids = vec![postmaster];
        pids.extend(process::children_of(postmaster));
        pids
    }

    /// Ends the server and all its children at once, as a power cut would.
    pub fn kill_hard(&self) -> Result<()> {
        let Some(postmaster) = self.postmaster_pid() else {
            return Ok(());
        };
        // A frozen postmaster starts no more children, so that the list is complete.
        process::freeze(postmaster);
        let pids = self.pids();
        for pid in &pids {
            process::kill_hard(*pid);
        }
        process::wait_ended(&pids, Duration::from_secs(60))
    }

    /// Connects to `database`.
    pub fn connect(&self, database: &str) -> Result<Client> {
        self.config(database)
            .connect(NoTls)
            .with_context(|| format!("cannot connect to database {database}"))
    }

    /// How to connect to `database`.
    pub fn config(&self, database: &str) -> Config {
        let mut config = Config::new();
        config
            .host_path(&self.run_directory)
            .port(PORT)
            .user(&self.owner.name)
            .dbname(database);
        config
    }

    /// The last `lines` of the server's log.
    pub fn log_tail(&self, lines: usize) -> String {
        let log = self.log();
        let all: Vec<&str> = log.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    /// Checks all tables and indexes of all databases, every heap row looked up in every index.
    pub fn amcheck(&self) -> Result<()> {
        let mut command = self.program("pg_amcheck");
        process::run(command.args([
            "--all",
            "--install-missing",
            "--heapallindexed",
            "--no-strict-names",
        ]))?;
        Ok(())
    }

    /// Checks the data checksums of every page of the stopped cluster.
    pub fn verify_checksums(&self) -> Result<()> {
        process::run(
            self.program("pg_checksums")
                .args(["--check", "-D"])
                .arg(&self.data_directory),
        )?;
        Ok(())
    }
}

/// Creates `directory` for `owner` alone.
fn make_private(directory: &Path, owner: &User) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    std::os::unix::fs::chown(directory, Some(owner.uid), Some(owner.gid))?;
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o700))?;
    Ok(())
}
