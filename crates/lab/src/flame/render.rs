//! From samples to a picture: `perf script`, `inferno-collapse-perf` and `inferno-flamegraph`, one piped into the next.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Directory of the renderer's programs where they are not on the path, such as in a build directory.
const PROGRAMS_VARIABLE: &str = "PACKSTONE_INFERNO_BIN";

/// Renders the samples in `data` as an SVG file. The error says what is missing and how to get it.
pub fn render(data: &Path, svg: &Path, title: &str) -> Result<(), String> {
    let file = File::create(svg).map_err(|error| format!("{} cannot be written: {error}", svg.display()))?;
    let rendered = pipeline(data, file, title);
    if rendered.is_err() {
        // It holds half a picture or none.
        let _ = std::fs::remove_file(svg);
    }
    rendered
}

fn pipeline(data: &Path, svg: File, title: &str) -> Result<(), String> {
    let mut script = Command::new("perf");
    // Names of this machine's kernel and programs are wanted, sources and lines are not: they take minutes.
    script.args(["script", "--no-inline", "-i"]).arg(data);
    let (mut script, samples) = Stage::start(&mut script, Stdio::null())?;
    let (mut collapse, folded) = Stage::start(&mut program("inferno-collapse-perf"), samples)?;
    let mut flamegraph = program("inferno-flamegraph");
    flamegraph
        .args(["--title", title, "--hash"])
        .stdin(folded)
        .stdout(svg)
        .stderr(Stdio::piped());
    let mut flamegraph = Stage(
        flamegraph
            .spawn()
            .map_err(|error| missing("inferno-flamegraph", &error))?,
    );
    let ended = [
        flamegraph.wait("inferno-flamegraph"),
        collapse.wait("inferno-collapse-perf"),
        script.wait("perf script"),
    ];
    ended.into_iter().collect()
}

/// One program of the pipeline. It does not outlive a pipeline that could not be completed.
struct Stage(Child);

impl Stage {
    /// Starts the program; gives what it writes as input for the next.
    fn start(command: &mut Command, input: Stdio) -> Result<(Stage, Stdio), String> {
        let name = command.get_program().to_string_lossy().into_owned();
        // What goes wrong shows in the exit status; the many warnings of perf would fill a pipe that nobody empties.
        command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| missing(&name, &error))?;
        let output = child.stdout.take().map_or_else(Stdio::null, Stdio::from);
        Ok((Stage(child), output))
    }

    fn wait(&mut self, name: &str) -> Result<(), String> {
        let mut said = String::new();
        if let Some(stderr) = &mut self.0.stderr {
            let _ = stderr.take(64 << 10).read_to_string(&mut said);
        }
        match self.0.wait() {
            Ok(status) if status.success() => Ok(()),
            _ if said.contains("No stack counts found") => {
                Err("there were no samples: the processes did next to nothing".to_owned())
            }
            Ok(status) => Err(format!(
                "{name} failed ({status}): {}",
                said.trim().lines().last().unwrap_or_default()
            )),
            Err(error) => Err(format!("{name} cannot be waited for: {error}")),
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn program(name: &str) -> Command {
    match std::env::var_os(PROGRAMS_VARIABLE) {
        Some(directory) => Command::new(Path::new(&directory).join(name)),
        None => Command::new(name),
    }
}

fn missing(program: &str, error: &std::io::Error) -> String {
    if error.kind() == std::io::ErrorKind::NotFound && program.contains("inferno") {
        return format!(
            "the renderer is not installed (cargo install inferno --locked, or scripts/setup.sh --flame-graphs and {PROGRAMS_VARIABLE}=target/tools/bin)"
        );
    }
    format!("{program} could not be started: {error}")
}
