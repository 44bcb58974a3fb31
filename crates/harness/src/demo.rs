//! The demonstration: PostgreSQL with generated click events on a compressed pool, and what they take there.
//!
//! Everything lies in one scratch directory and is undone at the end, on an error and on Ctrl-C, unless it is to be kept.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use postgres::{Client, SimpleQueryMessage};

use crate::cluster::Cluster;
use crate::events::{self, Generator};
use crate::packstone::{Pool, Status};
use crate::relations::{self, Relation, Sizes};
use crate::scratch::{self, Cleanup};
use crate::{render, requirements};

/// What the demonstration is to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of events.
    pub events: u64,
    /// Where the scratch directory is made.
    pub directory: PathBuf,
    /// Size of the pool's file, as `packstone create --size` takes it.
    pub size: String,
    /// Leave pool, mount and server running.
    pub keep: bool,
    /// Use a plain directory in place of a pool, to see the difference or to try the demonstration itself.
    pub plain: bool,
}

/// The pieces that are running.
struct Stage {
    home: PathBuf,
    mountpoint: PathBuf,
    pool: Option<Pool>,
    cluster: Cluster,
}

/// Runs the whole demonstration.
pub fn run(options: &Options) -> Result<()> {
    let started = Instant::now();
    check_requirements(options)?;
    let cleanup = Cleanup::new();
    cleanup.on_signals()?;
    let outcome = play(options, &cleanup);
    match &outcome {
        Ok(stage) if options.keep => {
            cleanup.keep_everything();
            explain_how_to_go_on(stage);
        }
        Ok(_) => {
            cleanup.run();
            println!("\nEverything was removed again. KEEP=1 keeps it.");
        }
        Err(_) => cleanup.run(),
    }
    outcome?;
    println!("The demonstration took {}.", render::duration(started.elapsed()));
    Ok(())
}

fn play(options: &Options, cleanup: &Cleanup) -> Result<Stage> {
    let stage = set_up(options, cleanup)?;
    let mut database = stage.cluster.connect("postgres")?;
    load(&mut database, options.events)?;
    create_indexes(&mut database)?;
    ask_questions(&mut database)?;
    report(&stage, &mut database)?;
    Ok(stage)
}

fn check_requirements(options: &Options) -> Result<()> {
    let missing = requirements::missing_for_postgres();
    let missing = missing.or_else(|| {
        if options.plain {
            None
        } else {
            requirements::missing_for_mounts()
        }
    });
    match missing {
        Some(reason) => anyhow::bail!("the demonstration cannot run: {reason}"),
        None => Ok(()),
    }
}

fn set_up(options: &Options, cleanup: &Cleanup) -> Result<Stage> {
    let home = scratch::directory(&options.directory, "packstone-demo-", cleanup)?;
    let mountpoint = home.join("pg");
    let (pool, cluster) = if options.plain {
        say("creating a PostgreSQL cluster in a plain directory");
        (None, Cluster::create(&mountpoint, &home.join("run"))?)
    } else {
        let pool = Pool::new("demo", &home)?;
        say(&format!(
            "creating a pool of {} in {}",
            options.size,
            pool.member.display()
        ));
        pool.create(&options.size, cleanup)?;
        say("creating a dataset with a PostgreSQL cluster on it");
        let data_directory = pool.create_postgres("pg", &mountpoint, cleanup)?;
        (Some(pool), Cluster::on(&data_directory, &home.join("run"))?)
    };
    let cluster = cluster
        .with_setting("shared_buffers", "256MB")
        .with_setting("maintenance_work_mem", "512MB")
        .with_setting("max_wal_size", "2GB")
        .with_setting("jit", "off");
    say("starting PostgreSQL on a private socket");
    cluster.start_with(cleanup)?;
    Ok(Stage {
        home,
        mountpoint,
        pool,
        cluster,
    })
}

fn say(text: &str) {
    println!("- {text}");
}

fn bar(length: u64, text: &'static str) -> ProgressBar {
    let style = "  {msg} {wide_bar} {human_pos}/{human_len} {per_sec} {eta}";
    let bar = ProgressBar::new(length).with_message(text);
    bar.set_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

fn spinner(text: String) -> ProgressBar {
    let spinner = ProgressBar::new_spinner().with_message(text);
    spinner.enable_steady_tick(Duration::from_millis(120));
    spinner
}

/// Copies generated events into a new table.
pub fn load(database: &mut Client, count: u64) -> Result<()> {
    const ROWS_PER_WRITE: u64 = 500;
    database.batch_execute(events::CREATE_TABLE)?;
    let started = Instant::now();
    let progress = bar(count, "events");
    let mut generator = Generator::new(1);
    let mut writer = database.copy_in(events::COPY)?;
    let mut text = String::new();
    let mut sent_bytes = 0;
    let mut done = 0;
    while done < count {
        let rows = ROWS_PER_WRITE.min(count - done);
        text.clear();
        for _ in 0..rows {
            generator.write_row(&mut text);
        }
        writer
            .write_all(text.as_bytes())
            .context("PostgreSQL stopped taking events")?;
        sent_bytes += text.len() as u64;
        done += rows;
        progress.set_position(done);
    }
    writer.finish()?;
    progress.finish_and_clear();
    say(&format!(
        "loaded {} events ({} of text) in {}",
        render::count(count),
        render::bytes(sent_bytes),
        render::duration(started.elapsed())
    ));
    Ok(())
}

fn create_indexes(database: &mut Client) -> Result<()> {
    let started = Instant::now();
    for statement in events::CREATE_INDEXES {
        let progress = spinner(format!("{statement} ..."));
        database.batch_execute(statement)?;
        progress.finish_and_clear();
    }
    database.batch_execute("VACUUM (ANALYZE) event")?;
    say(&format!(
        "made {} indexes in {}",
        events::CREATE_INDEXES.len(),
        render::duration(started.elapsed())
    ));
    Ok(())
}

fn ask_questions(database: &mut Client) -> Result<()> {
    for (question, statement) in events::QUESTIONS {
        let started = Instant::now();
        let messages = database
            .simple_query(statement)
            .with_context(|| format!("asking for: {question}"))?;
        let time = started.elapsed();
        println!("\n{question} ({})", render::duration(time));
        println!("{}", result_table(&messages));
    }
    Ok(())
}

fn result_table(messages: &[SimpleQueryMessage]) -> comfy_table::Table {
    let mut header = Vec::new();
    let mut rows = Vec::new();
    for message in messages {
        if let SimpleQueryMessage::Row(row) = message {
            header = row
                .columns()
                .iter()
                .map(|column| column.name().to_owned())
                .collect();
            rows.push(
                (0..row.len())
                    .map(|index| row.get(index).unwrap_or("").to_owned())
                    .collect(),
            );
        }
    }
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    render::table(&header, 1, &rows)
}

fn report(stage: &Stage, database: &mut Client) -> Result<()> {
    database.batch_execute("CHECKPOINT")?;
    let data_directory = stage.cluster.data_directory();
    let relations = relations::relations(database, data_directory)?;
    println!("\nWhat the tables and indexes take");
    println!("{}", relation_table(&relations));
    let whole = relations::directory_sizes(data_directory)?;
    match &stage.pool {
        Some(pool) => print_pool(&pool.status()?, whole),
        None => println!(
            "The whole data directory takes {} on this file system.",
            render::bytes(whole.stored_bytes)
        ),
    }
    Ok(())
}

fn relation_table(relations: &[Relation]) -> comfy_table::Table {
    let row = |name: &str, kind: &str, sizes: Sizes| {
        vec![
            name.to_owned(),
            kind.to_owned(),
            render::bytes(sizes.logical_bytes),
            render::bytes(sizes.stored_bytes),
            render::ratio(sizes.logical_bytes, sizes.stored_bytes),
            render::bytes(sizes.ext4_bytes),
        ]
    };
    let mut total = Sizes::default();
    let mut rows = Vec::new();
    for relation in relations {
        total.add(relation.sizes);
        rows.push(row(&relation.name, &relation.kind, relation.sizes));
    }
    rows.push(row("total", "", total));
    render::table(
        &["relation", "kind", "logical", "stored", "ratio", "on ext4"],
        2,
        &rows,
    )
}

fn print_pool(status: &Status, whole: Sizes) {
    let mut rows: Vec<Vec<String>> = Vec::new();
    for (purpose, bytes) in &status.media_written_bytes.by_purpose {
        rows.push(vec![purpose.clone(), render::bytes(*bytes)]);
    }
    rows.push(vec![
        "total".to_owned(),
        render::bytes(status.media_written_bytes.total_bytes),
    ]);
    println!("\nBytes written to media since the pool was opened, PostgreSQL's log included");
    println!("{}", render::table(&["purpose", "written"], 1, &rows));

    let pool = [
        (
            "files of the whole data directory, log included",
            status.logical_bytes,
        ),
        (
            "stored for them: packed records and their index",
            status.stored_bytes,
        ),
        (
            "segments in use, with what is dead in them",
            status.allocated_bytes,
        ),
        ("ext4 would take for the same files", whole.ext4_bytes),
    ];
    let rows: Vec<Vec<String>> = pool
        .iter()
        .map(|(what, bytes)| vec![(*what).to_owned(), render::bytes(*bytes)])
        .collect();
    println!("\nThe whole pool");
    println!("{}", render::table(&["what", "bytes"], 1, &rows));
    println!(
        "ext4 / stored: {}",
        render::ratio(whole.ext4_bytes, status.stored_bytes)
    );
}

fn explain_how_to_go_on(stage: &Stage) {
    let run = stage.cluster.run_directory().display();
    println!("\nEverything was kept. The server runs; connect with:");
    println!("  {}psql -h {run} postgres", as_owner(stage));
    println!("To stop and remove it:");
    println!(
        "  {}{} stop -D {}",
        as_owner(stage),
        pg_ctl().display(),
        stage.cluster.data_directory().display()
    );
    if let Some(pool) = &stage.pool {
        println!(
            "  export PACKSTONE_STATE_DIR={}",
            pool.state_directory().display()
        );
        println!(
            "  {} unmount {}",
            pool.program().display(),
            stage.mountpoint.display()
        );
        println!("  {} destroy {}", pool.program().display(), pool.name);
    }
    println!("  rm -r {}", stage.home.display());
}

fn as_owner(stage: &Stage) -> String {
    if crate::process::is_root() {
        format!("runuser -u {} -- ", stage.cluster.owner().name)
    } else {
        String::new()
    }
}

fn pg_ctl() -> PathBuf {
    requirements::postgres_programs().map_or_else(
        |_| Path::new("pg_ctl").to_owned(),
        |directory| directory.join("pg_ctl"),
    )
}
