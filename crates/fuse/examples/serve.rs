//! Mounts a new pool in a temporary file and serves it until it is unmounted; then prints how many requests of which
//! kind came. For looking at what a program costs:
//!
//! `cargo run --release -p packstone-fuse --example serve -- MOUNTPOINT [THREADS [TRANSPORT]]`

#![allow(missing_docs, clippy::unwrap_used)]

#[path = "../tests/mount/store.rs"]
mod store;

use packstone_fuse::{MountConfig, TransportChoice, mount};

fn main() {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .init();
    let mut arguments = std::env::args_os().skip(1);
    let Some(mountpoint) = arguments.next() else {
        eprintln!("usage: serve MOUNTPOINT [THREADS [auto|device|io_uring]]");
        std::process::exit(2);
    };
    let threads = arguments
        .next()
        .map_or(0, |text| text.to_str().unwrap().parse().unwrap());
    let transport = arguments
        .next()
        .map_or(Ok(TransportChoice::Auto), |text| text.to_str().unwrap().parse());
    let directory = tempfile::tempdir().unwrap();
    let store = store::Store::create(directory.path());
    let config = MountConfig {
        threads,
        transport: transport.unwrap(),
        ..MountConfig::new(mountpoint, "tank/files")
    };
    let mounted = mount(store.filesystem.clone(), config).unwrap();
    println!(
        "serving {} by {}",
        mounted.mountpoint().display(),
        mounted.transport()
    );
    mounted.wait();
    for (name, count) in mounted.statistics().requests {
        println!("{count:>10} {name}");
    }
}
