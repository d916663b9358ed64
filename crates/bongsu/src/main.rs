//! The executable `bongsu`; the library of the same name has all of its code.

use std::process::ExitCode;

fn main() -> ExitCode {
    bongsu::run()
}
