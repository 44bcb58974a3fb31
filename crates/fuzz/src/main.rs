//! Writes the seeds of all targets, or replays inputs without a fuzzer.
//!
//! ```text
//! packstone-fuzz seeds DIRECTORY            a directory for each target, a file for each seed
//! packstone-fuzz replay TARGET FILE...      panics where the fuzzer found it to
//! packstone-fuzz targets                    their names
//! ```

use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["targets"] => packstone_fuzz::TARGETS
            .iter()
            .for_each(|(name, _)| println!("{name}")),
        ["seeds", directory] => write_seeds(Path::new(directory))?,
        ["replay", target, ref files @ ..] => {
            let run =
                packstone_fuzz::target(target).with_context(|| format!("there is no target '{target}'"))?;
            for file in files {
                println!("{file}");
                run(&fs::read(file).with_context(|| format!("cannot read {file}"))?);
            }
        }
        _ => bail!("use: packstone-fuzz seeds DIRECTORY | replay TARGET FILE... | targets"),
    }
    Ok(())
}

fn write_seeds(directory: &Path) -> Result<()> {
    for (number, (target, bytes)) in packstone_fuzz::seeds().iter().enumerate() {
        let directory = directory.join(target);
        fs::create_dir_all(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
        let file = directory.join(format!("seed-{number:03}"));
        fs::write(&file, bytes).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}
