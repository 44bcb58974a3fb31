//! Runs made by hand for tests: what the turns yield is written down here, nothing is measured.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::figure::{Better, Distribution, Figure, Series, TurnResult, Unit};
use crate::run_information::{ArmInformation, MachineInformation, RunInformation};

/// A run of `arms`, the first of them the control.
pub fn information(arms: &[&str], rounds: u32) -> RunInformation {
    RunInformation {
        experiment_name: "sample".to_owned(),
        description: "Made by hand for tests: no storage was measured.\n\nA <second> paragraph & an \"end\"."
            .to_owned(),
        control: arms[0].to_owned(),
        arms: arms
            .iter()
            .map(|name| ArmInformation {
                name: (*name).to_owned(),
                kind: name.split(' ').next().unwrap_or_default().to_owned(),
                summary: "noatime".to_owned(),
            })
            .collect(),
        machine: MachineInformation {
            kernel: "Linux 6.12.0".to_owned(),
            processors: 2,
            memory_bytes: 8 << 30,
            program_versions: vec![("postgres".to_owned(), "15.1".to_owned())],
        },
        profile: "gp3: 125 MB/s, 3000 operations/s".to_owned(),
        workload: "kind = \"pgbench\"\nscale = 50\n".to_owned(),
        rounds,
        started_unix_seconds: 1_700_000_000,
    }
}

/// A turn without figures.
pub fn turn(arm: &str, round: Option<u32>, position: u32) -> TurnResult {
    TurnResult {
        arm: arm.to_owned(),
        round,
        position,
        ..TurnResult::default()
    }
}

/// Adds a figure of the phase `8 clients`.
pub fn with(mut turn: TurnResult, name: &str, unit: Unit, better: Better, value: f64) -> TurnResult {
    turn.figures.push(Figure {
        phase: "8 clients".to_owned(),
        name: name.to_owned(),
        unit,
        better,
        value,
    });
    turn
}

/// Places of the turns of one round, in order: A B B A, or A B C C B A.
pub fn round_order<'a>(arms: &[&'a str]) -> Vec<&'a str> {
    arms.iter().chain(arms.iter().rev()).copied().collect()
}

/// A normally distributed number with mean 0 and standard deviation 1 (Box and Muller).
pub fn normal(random: &mut SmallRng) -> f64 {
    let (radius, angle): (f64, f64) = (1.0 - random.random::<f64>(), random.random::<f64>());
    (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}

/// A whole run with everything that a report shows: an A/A pair and `rounds` rounds of `arms` (name and how much faster
/// than the control), with 2 % of noise.
pub fn run(arms: &[(&str, f64)], rounds: u32) -> (RunInformation, Vec<TurnResult>) {
    let names: Vec<&str> = arms.iter().map(|arm| arm.0).collect();
    let mut random = SmallRng::seed_from_u64(4);
    let mut turns = vec![
        full_turn(&mut random, turn(names[0], None, 0), 1.0),
        full_turn(&mut random, turn(names[0], None, 1), 1.0),
    ];
    for round in 0..rounds {
        for (position, name) in round_order(&names).into_iter().enumerate() {
            let faster = arms.iter().find(|arm| arm.0 == name).map_or(1.0, |arm| arm.1);
            turns.push(full_turn(
                &mut random,
                turn(name, Some(round), position as u32),
                faster,
            ));
        }
    }
    (information(&names, rounds), turns)
}

fn full_turn(random: &mut SmallRng, mut turn: TurnResult, faster: f64) -> TurnResult {
    use Better::{Higher, Lower, Neither};
    let mut noisy = |value: f64| value * (0.02 * normal(random)).exp();
    let throughput = noisy(1500.0 * faster);
    let figures = [
        ("load", "time", Unit::Seconds, Lower, noisy(62.0 / faster.sqrt())),
        (
            "load",
            "device bytes written",
            Unit::Bytes,
            Lower,
            noisy(1.3e9 / faster.powi(2)),
        ),
        ("8 clients", "throughput", Unit::PerSecond, Higher, throughput),
        (
            "8 clients",
            "latency p99",
            Unit::Seconds,
            Lower,
            noisy(0.021 / faster),
        ),
        (
            "8 clients",
            "device bytes written per transaction",
            Unit::Bytes,
            Lower,
            noisy(21_000.0 / faster.powi(3)),
        ),
        (
            "8 clients",
            "device bytes written",
            Unit::Bytes,
            Lower,
            noisy(1.9e9 / faster.powi(3)),
        ),
        (
            "8 clients",
            "CPU seconds of server and daemon per transaction",
            Unit::Seconds,
            Lower,
            noisy(0.000_9),
        ),
        (
            "8 clients",
            "cache hits",
            Unit::Ratio,
            Higher,
            noisy(0.93).min(1.0),
        ),
        (
            "8 clients",
            "transactions",
            Unit::Count,
            Neither,
            (throughput * 60.0).round(),
        ),
        (
            "8 clients",
            "flushes",
            Unit::Count,
            Lower,
            if faster > 1.0 { 0.0 } else { 900.0 },
        ),
    ];
    turn.started_unix_seconds = 1_700_000_000 + u64::from(turn.position) * 300;
    turn.figures = figures
        .into_iter()
        .map(|(phase, name, unit, better, value)| Figure {
            phase: phase.to_owned(),
            name: name.to_owned(),
            unit,
            better,
            value,
        })
        .collect();
    turn.distributions.push(Distribution {
        phase: "8 clients".to_owned(),
        name: "transaction".to_owned(),
        from_intended_start: false,
        points: (1..100)
            .chain([995, 999].map(|thousandth| thousandth * 100 / 1000))
            .map(|hundredth| {
                let share = f64::from(hundredth) / 100.0;
                (0.004 / faster * (1.0 + (1.0 / (1.0 - share)).powf(0.6)), share)
            })
            .chain([(0.09 / faster, 0.999), (0.31 / faster, 1.0)])
            .collect(),
    });
    turn.series.push(Series {
        phase: "8 clients".to_owned(),
        name: "throughput".to_owned(),
        unit: Unit::PerSecond,
        points: (0..60)
            .map(|second| {
                let dip = if second % 30 > 25 { 0.5 } else { 1.0 };
                (
                    f64::from(second),
                    throughput * dip * (0.05 * normal(random)).exp(),
                )
            })
            .collect(),
    });
    turn.notes.push("the page cache could not be dropped".to_owned());
    turn
}
