//! `sheen bench`: the benchmarks of this field, on any directory and on the native client.
//!
//! The benchmarks themselves are the crate `sheen-bench`; here are what they need of a program (signals,
//! standard output) and the client library as a file system for them.

mod native;
mod survey;

use std::ffi::OsString;

use sheen_bench::backend::Backend;
use sheen_bench::{Bench, Ended, Native, Part, Surroundings};

use native::NativeBackend;
use sheen_tools::interrupt;
use sheen_tools::output::{Fault, text_out};

/// Exit code after a failure, as mdtest and IOR have it.
const FAILED_CODE: u8 = 1;

/// `-np N`, which people know from `mpirun`, is no option that a parser of single letters understands.
pub(crate) fn ranks_apart(mut words: Vec<OsString>) -> Vec<OsString> {
    if words.get(1).is_some_and(|word| word == "bench") {
        words.iter_mut().filter(|word| *word == "-np").for_each(|word| *word = "--ranks".into());
    }
    words
}

pub(crate) fn run(bench: &Bench) -> Result<(), Fault> {
    let stop = interrupt::listen()?;
    let words: Vec<String> =
        std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let child = Part::of_this_process();
    let connect = |options: &Native, clients: u16| -> Result<Box<dyn Backend>, String> {
        Ok(Box::new(NativeBackend::connect(options, clients)?))
    };
    // Rank 0 speaks for all.
    let out = |text: &str| {
        if child.is_none() {
            text_out(text);
        }
    };
    let surroundings = Surroundings::new(stop, &connect, &out, &words);
    bench.run(&surroundings, &survey::Servers).map_err(|ended| match ended {
        // A child has reported it to rank 0.
        _ if child.is_some() => Fault { code: FAILED_CODE, text: String::new() },
        Ended::Failed(line) => Fault { code: FAILED_CODE, text: format!("sheen bench: {line}") },
        Ended::Interrupted => Fault {
            code: interrupt::interrupted_code(),
            text: "sheen bench: interrupted".to_owned(),
        },
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::ranks_apart;

    #[test]
    fn the_word_of_mpirun_is_understood() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        let apart = ranks_apart(words("sheen bench mdtest -np 4 -n 10"));
        assert_eq!(apart, words("sheen bench mdtest --ranks 4 -n 10"));
        assert_eq!(ranks_apart(words("sheen lfs -np")), words("sheen lfs -np"));
    }
}
