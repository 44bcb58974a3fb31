//! Processor time of the whole machine from `/proc/stat`: kernel threads that write back and serve loop devices belong to
//! no process of ours, and cost all the same.

/// Seconds of all processors that were not idle since boot; 0 when the kernel does not say.
pub(crate) fn busy_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    busy_ticks(&text).unwrap_or(0) as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// User, nice, system, interrupts and soft interrupts. Not counted: idle, waiting for I/O, and what other guests of the
/// same host took; guests of this machine are within user.
fn busy_ticks(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("cpu "))?;
    let fields: Vec<u64> = line
        .split_whitespace()
        .skip(1)
        .map(|field| field.parse().ok())
        .collect::<Option<_>>()?;
    const IDLE_AND_WAITING: [usize; 2] = [3, 4];
    const INTERRUPTS_END: usize = 7;
    let counted = fields.iter().take(INTERRUPTS_END).enumerate();
    Some(
        counted
            .filter(|(at, _)| !IDLE_AND_WAITING.contains(at))
            .map(|(_, ticks)| ticks)
            .sum(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_waiting_and_stolen_time_is_left_out() {
        let text = "cpu  100 20 30 4000 500 6 7 80 90 10\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        assert_eq!(busy_ticks(text), Some(100 + 20 + 30 + 6 + 7));
        assert_eq!(busy_ticks("intr 5"), None);
        assert!(busy_seconds() > 0.0);
    }
}
