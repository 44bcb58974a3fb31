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

/// How long a start may take; it includes the recovery after a crash, on a machine that may be busy with other things.
const START_LIMIT_S: u32 = 300;

/// How long the processes of a killed server may take to end: those that wait for a file system end when it answers.
const KILL_LIMIT: Duration = Duration::from_secs(60);

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
        let resolved = |path: &Path| {
            std::fs::canonicalize(path).with_context(|| format!("cannot find {}", path.display()))
        };
        let (data_directory, run_directory) = (resolved(data_directory)?, resolved(run_directory)?);
        // Peer authentication would refuse root connecting as the server's user. The directory of the socket is
        // private to that user, so everyone who reaches the socket may connect.
        let rules = run_directory.join("pg_hba.conf");
        std::fs::write(&rules, "local all all trust\n")
            .with_context(|| format!("cannot write {}", rules.display()))?;
        std::os::unix::fs::chown(&rules, Some(owner.uid), Some(owner.gid))?;
        Ok(Cluster {
            programs: requirements::postgres_programs()?,
            data_directory,
            run_directory,
            owner,
            settings: Vec::new(),
        })
    }

    /// Makes a new cluster in `data_directory` with data checksums, as `packstone postgres create` does on a pool.
    pub fn create(data_directory: &Path, run_directory: &Path) -> Result<Cluster> {
        make_private(data_directory, &User::for_postgres()?)?;
        let cluster = Cluster::on(data_directory, run_directory)?;
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

    fn socket_lock(&self) -> PathBuf {
        self.run_directory.join(format!(".s.PGSQL.{PORT}.lock"))
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

    /// Starts the server and waits until it takes connections, recovery included. A failure shows what `pg_ctl` said and
    /// the end of the server's log.
    pub fn start(&self) -> Result<()> {
        let limit = START_LIMIT_S.to_string();
        self.run_start(&["-w", "-t", &limit])
    }

    /// Starts the server and returns while it may still be recovering; its first process is there.
    pub fn begin_start(&self) -> Result<()> {
        self.run_start(&["-W"])?;
        // Not an error when it is not: it may have ended already, which a later start will show.
        let _ = process::wait_until(Duration::from_secs(5), "the server's first process", || {
            !self.pids().is_empty()
        });
        Ok(())
    }

    /// After a crash the lock files of the last server are still there. PostgreSQL takes them for those of a living one
    /// while any process answers to the number in them: one that has ended and that its parent has not taken note of yet,
    /// or, when numbers come round quickly, somebody else's.
    fn forget_last_server(&self) {
        const PARENTS_TAKE: Duration = Duration::from_secs(10);
        for lock in [self.data_directory.join("postmaster.pid"), self.socket_lock()] {
            let Some(pid) = first_line_as_pid(&lock) else {
                continue;
            };
            let _ = process::wait_until(PARENTS_TAKE, "the last server to vanish", || {
                process::is_running(pid) || !process::exists(pid)
            });
            if process::exists(pid) && self.pids().is_empty() {
                // A failure shows in the start.
                let _ = std::fs::remove_file(&lock);
            }
        }
    }

    fn run_start(&self, waiting: &[&str]) -> Result<()> {
        self.forget_last_server();
        let said_path = self.run_directory.join("pg_ctl.out");
        let said = std::fs::File::create(&said_path)
            .with_context(|| format!("cannot create {}", said_path.display()))?;
        let mut command = self.program("pg_ctl");
        command.args(["start", "-s"]).args(waiting);
        command.arg("-o").arg(self.server_options());
        command.arg("-D").arg(&self.data_directory);
        command.arg("-l").arg(self.log_path());
        // The server inherits these: a pipe here would stay open, and be waited for, as long as the server runs.
        command
            .stdin(std::process::Stdio::null())
            .stdout(said.try_clone()?)
            .stderr(said);
        let status = command.status().context("cannot run pg_ctl")?;
        if !status.success() {
            bail!(
                "PostgreSQL did not start ({status}): {}\nthe end of its log:\n{}",
                std::fs::read_to_string(&said_path).unwrap_or_default().trim(),
                self.log_tail(30)
            );
        }
        Ok(())
    }

    /// What is given to the server beside its configuration.
    fn server_options(&self) -> String {
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
        options
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
        let pid = first_line_as_pid(&self.socket_lock())?;
        // A killed server leaves the file behind, and the id may by now be that of another one.
        self.pids().contains(&pid).then_some(pid)
    }

    /// Processes of the server: the first one and its children, also those that have outlived the first. They are told by
    /// where they work, which is the data directory or, while they start, the run directory; that is known also when the
    /// file system there is dead.
    pub fn pids(&self) -> Vec<i32> {
        let is_ours = |pid: &i32| {
            process::executable(*pid).is_some_and(|path| path.ends_with("postgres"))
                && process::working_directory(*pid)
                    .is_some_and(|path| path == self.data_directory || path == self.run_directory)
                && process::is_running(*pid)
        };
        process::all_pids().into_iter().filter(is_ours).collect()
    }

    /// Ends the server and all its children at once, as a power cut would, and returns when none is left.
    pub fn kill_hard(&self) -> Result<()> {
        let start = std::time::Instant::now();
        loop {
            // A frozen postmaster starts no more children. One that has just begun to start is found in the next round.
            if let Some(postmaster) = self.postmaster_pid() {
                process::freeze(postmaster);
            }
            let pids = self.pids();
            if pids.is_empty() {
                return Ok(());
            }
            for pid in &pids {
                process::kill_hard(*pid);
            }
            process::wait_ended(&pids, KILL_LIMIT)?;
            if start.elapsed() > KILL_LIMIT {
                bail!("the server's processes do not end: {:?}", self.pids());
            }
        }
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
        self.run_amcheck("--all")
    }

    /// As [`Cluster::amcheck`] for the database `postgres` alone.
    pub fn amcheck_tables(&self) -> Result<()> {
        self.run_amcheck("--database=postgres")
    }

    fn run_amcheck(&self, databases: &str) -> Result<()> {
        let mut command = self.program("pg_amcheck");
        process::run(command.args([
            databases,
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

fn first_line_as_pid(path: &Path) -> Option<i32> {
    let text = std::fs::read_to_string(path).ok()?;
    text.lines().next()?.trim().parse().ok()
}

/// Creates `directory` for `owner` alone.
fn make_private(directory: &Path, owner: &User) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    std::os::unix::fs::chown(directory, Some(owner.uid), Some(owner.gid))?;
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o700))?;
    Ok(())
}
