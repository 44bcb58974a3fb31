//! The program `packstone`. What it does is in the library beside it, so that tests reach more than the program shows.

use std::process::ExitCode;

fn main() -> ExitCode {
    packstone_cli::main()
}
