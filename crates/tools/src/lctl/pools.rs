//! `lctl pool_new`, `pool_add`, `pool_remove`, `pool_destroy`, `pool_list`.
//!
//! The MGS keeps pools; mounts and MDTs learn of a change about a second later. Without
//! `--nowait` a command waits until all that run on this machine have.

use std::time::{Duration, Instant};

use clap::Args;
use sheen_types::Errno;

use super::params::on_the_mgs;
use crate::lfs::{pool_names, print_pools};
use crate::origins;
use crate::output::{Fault, line};
use sheen_control::api::POOL;

/// How long to wait until mounts and MDTs know a change, and how often to look.
const WAIT: Duration = Duration::from_secs(15);
const LOOK: Duration = Duration::from_millis(100);
/// Longest name of a file system, and of a pool.
const FSNAME_BYTES_MAX: usize = 8;
const POOL_BYTES_MAX: usize = 15;
/// Names that mean something else in a layout.
const RESERVED: [&str; 3] = ["none", "ignore", "inherit"];

/// Options of `pool_new` and `pool_destroy`.
#[derive(Args)]
pub(super) struct Pool {
    /// Do not wait until the mounts and MDTs of this machine have seen the change
    #[arg(short, long)]
    nowait: bool,
    /// The file system and the pool
    #[arg(required = true, value_name = "FSNAME.POOL")]
    name: String,
}

/// Options of `pool_add` and `pool_remove`.
#[derive(Args)]
pub(super) struct Members {
    #[command(flatten)]
    pool: Pool,
    /// OSTs: OST0000, FSNAME-OST0000, OST[0-7/2,9], with hexadecimal indexes
    #[arg(required = true, value_name = "OST")]
    osts: Vec<String>,
}

/// Options of `pool_list`.
#[derive(Args)]
pub(super) struct List {
    /// A file system, a pool of it, or a path on it
    #[arg(required = true, value_name = "FSNAME[.POOL]|PATH")]
    name: String,
}

pub(super) fn list(options: &List) -> Result<(), Fault> {
    print_pools("lctl pool_list", &options.name)
}

pub(super) fn create(options: &Pool) -> Result<(), Fault> {
    let (fsname, pool) = names("pool_new", &options.name)?;
    origins::choose_mgs("lctl pool_new", |name| name == fsname)?;
    let failed = |errno| match errno {
        Errno::EEXIST => format!("pool_new: pool {fsname}.{pool} already exists"),
        errno => format!("pool_new {fsname}.{pool}: {errno}"),
    };
    change("new", fsname, pool, None).map_err(|errno| Fault::new(errno, failed(errno)))?;
    settle(options, fsname, pool, |members| members.is_some());
    line(format_args!("Pool {fsname}.{pool} created"));
    Ok(())
}

pub(super) fn destroy(options: &Pool) -> Result<(), Fault> {
    let (fsname, pool) = names("pool_destroy", &options.name)?;
    origins::choose_mgs("lctl pool_destroy", |name| name == fsname)?;
    let failed = |errno| match errno {
        Errno::ENOENT => format!("pool_destroy: pool {fsname}.{pool} not found"),
        errno => format!("pool_destroy {fsname}.{pool}: {errno}"),
    };
    change("destroy", fsname, pool, None).map_err(|errno| Fault::new(errno, failed(errno)))?;
    settle(options, fsname, pool, |members| members.is_none());
    line(format_args!("Pool {fsname}.{pool} destroyed"));
    Ok(())
}

pub(super) fn add(options: &Members) -> Result<(), Fault> {
    let (fsname, pool) = names("pool_add", &options.pool.name)?;
    let said = |errno, ost: &str| match errno {
        Errno::EEXIST => format!("pool_add: {ost} is already in pool {fsname}.{pool}"),
        Errno::ENOMEDIUM => format!("pool_add: pool {fsname}.{pool} not found"),
        Errno::ENODEV => format!("pool_add: {ost} is not part of the '{fsname}' fs."),
        errno => format!("pool_add {fsname}.{pool} {ost}: {errno}"),
    };
    each(options, "add", said, |ost, members| members.is_some_and(|text| text.contains(ost)))
}

pub(super) fn remove(options: &Members) -> Result<(), Fault> {
    let (fsname, pool) = names("pool_remove", &options.pool.name)?;
    let said = |errno, ost: &str| match errno {
        Errno::ENOENT => format!("pool_remove: {ost} not found in pool {fsname}.{pool}"),
        errno => format!("pool_remove {fsname}.{pool} {ost}: {errno}"),
    };
    each(options, "remove", said, |ost, members| members.is_none_or(|text| !text.contains(ost)))
}

/// Changes one member after the other; the last failure is the command's.
fn each(
    options: &Members,
    what: &str,
    said: impl Fn(Errno, &str) -> String,
    settled: impl Fn(&str, Option<&str>) -> bool,
) -> Result<(), Fault> {
    let command = format!("pool_{what}");
    let (fsname, pool) = names(&command, &options.pool.name)?;
    let mut osts = Vec::new();
    for text in &options.osts {
        let wrong = |why: String| {
            let errno = Errno::EINVAL;
            Fault::new(errno, format!("{command}: {why}: {errno}"))
        };
        osts.extend(members(fsname, text).map_err(wrong)?);
    }
    origins::choose_mgs(&format!("lctl {command}"), |name| name == fsname)?;
    let mut worst = None;
    for ost in osts {
        match change(what, fsname, pool, Some(&ost)) {
            Ok(()) => {
                settle(&options.pool, fsname, pool, |members| settled(&ost, members));
                let done = if what == "add" { "added to" } else { "removed from" };
                line(format_args!("OST {ost} {done} pool {fsname}.{pool}"));
            }
            Err(errno) => {
                eprintln!("{}", said(errno, &ost));
                worst = Some(errno);
            }
        }
    }
    crate::output::worst(worst)
}

/// Has the MGS change a pool. ENODEV is an OST that the file system does not have, and no MGS, too.
fn change(what: &str, fsname: &str, pool: &str, ost: Option<&str>) -> Result<(), Errno> {
    let name = ost.and_then(|uuid| uuid.strip_suffix("_UUID"));
    let words: Vec<&str> = [what, fsname, pool].into_iter().chain(name).collect();
    on_the_mgs(POOL, &words)
}

/// The file system and the pool in `FSNAME.POOL`.
fn names<'a>(command: &str, text: &'a str) -> Result<(&'a str, &'a str), Fault> {
    let fault = |errno: Errno, why: String| Fault::new(errno, format!("{command}: {why}"));
    let invalid = || fault(Errno::EINVAL, Errno::EINVAL.to_string());
    let (fsname, pool) = text.split_once('.').ok_or_else(invalid)?;
    let too_long = |what: &str| {
        let errno = Errno::ENAMETOOLONG;
        fault(errno, format!("{what} is too long: {errno}"))
    };
    match (fsname.len(), pool.len()) {
        (0, _) | (_, 0) => Err(invalid()),
        (bytes, _) if bytes > FSNAME_BYTES_MAX => Err(too_long("fsname")),
        (_, bytes) if bytes > POOL_BYTES_MAX => Err(too_long("poolname")),
        _ if RESERVED.contains(&pool) => {
            Err(fault(Errno::EINVAL, format!("poolname cannot be '{pool}'")))
        }
        _ => Ok((fsname, pool)),
    }
}

/// The UUIDs that `OST[0-7/2,9]` and the like stand for.
fn members(fsname: &str, text: &str) -> Result<Vec<String>, String> {
    let wrong = || format!("Wrong format for OST list '{text}'");
    let names: Vec<String> = match text.split_once('[') {
        None => vec![text.to_owned()],
        Some((before, rest)) => {
            let (ranges, after) = rest.split_once(']').ok_or_else(wrong)?;
            let numbers: Option<Vec<Vec<u32>>> = ranges.split(',').map(range).collect();
            let numbers = numbers.ok_or_else(wrong)?.into_iter().flatten();
            numbers.map(|number| format!("{before}{number:04x}{after}")).collect()
        }
    };
    names.iter().map(|name| member(fsname, name)).collect()
}

/// `0-7/2`: hexadecimal numbers, the step decimal.
fn range(text: &str) -> Option<Vec<u32>> {
    let (ends, step) = text.split_once('/').unwrap_or((text, "1"));
    let (first, last) = ends.split_once('-').unwrap_or((ends, ends));
    let number = |text: &str| u16::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    let (first, last) = (u32::from(number(first)?), u32::from(number(last)?));
    let step = step.parse().ok().filter(|step| *step > 0)?;
    (first <= last).then(|| (first..=last).step_by(step).collect())
}

fn member(fsname: &str, name: &str) -> Result<String, String> {
    let short = match name.split_once('-') {
        None => name,
        Some((own, short)) if own == fsname => short,
        Some(_) => return Err(format!("{name} does not start with fsname {fsname}")),
    };
    let short = short.strip_suffix("_UUID").unwrap_or(short);
    let digits = short
        .strip_prefix("OST")
        .ok_or_else(|| format!("{name} does not start by {fsname}-OST nor OST"))?;
    let index = u16::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 4);
    let index = index.ok_or_else(|| format!("ost's index in {name} is not an hexa number"))?;
    Ok(format!("{fsname}-OST{index:04x}_UUID"))
}

/// Waits until every mount and MDT of this machine shows the pool as `done` wants its members.
#[expect(clippy::disallowed_methods, reason = "a tool that waits for processes")]
fn settle(options: &Pool, fsname: &str, pool: &str, done: impl Fn(Option<&str>) -> bool) {
    if options.nowait {
        return;
    }
    let began = Instant::now();
    while !pool_names(fsname).iter().all(|pools| done(pools.get(pool).map(String::as_str))) {
        if began.elapsed() > WAIT {
            eprintln!(
                "Warning, not all mounts and MDTs of this machine have seen the change to pool {fsname}.{pool} yet"
            );
            return;
        }
        std::thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::{members, names};

    #[test]
    fn osts_are_named_in_many_ways() {
        let uuids = |indexes: &[u16]| -> Vec<String> {
            indexes.iter().map(|index| format!("lustre-OST{index:04x}_UUID")).collect()
        };
        for (text, indexes) in [
            ("OST0002", &[2][..]),
            ("lustre-OST0000", &[0]),
            ("lustre-OST00ff_UUID", &[255]),
            ("OST[0-3]", &[0, 1, 2, 3]),
            ("OST[0-6/2]", &[0, 2, 4, 6]),
            ("lustre-OST[0,2,9-b]_UUID", &[0, 2, 9, 10, 11]),
            ("OST[10]", &[16]),
        ] {
            assert_eq!(members("lustre", text).unwrap(), uuids(indexes), "{text}");
        }
        for (text, why) in [
            ("other-OST0000", "other-OST0000 does not start with fsname lustre"),
            ("MDT0000", "MDT0000 does not start by lustre-OST nor OST"),
            ("OST1", "ost's index in OST1 is not an hexa number"),
            ("OST[3-1]", "Wrong format for OST list 'OST[3-1]'"),
            ("OST[0-3/0]", "Wrong format for OST list 'OST[0-3/0]'"),
            ("OST[0-3", "Wrong format for OST list 'OST[0-3'"),
        ] {
            assert_eq!(members("lustre", text), Err(why.to_owned()));
        }
    }

    #[test]
    fn names_are_checked_as_lctl_checks_them() {
        assert_eq!(names("pool_new", "lustre.fast").unwrap(), ("lustre", "fast"));
        for (text, code, said) in [
            ("bogus", 22, "pool_new: Invalid argument"),
            (".x", 22, "pool_new: Invalid argument"),
            ("lustre.", 22, "pool_new: Invalid argument"),
            ("lustre123.x", 36, "pool_new: fsname is too long: File name too long"),
            ("lustre.averyverylongone", 36, "pool_new: poolname is too long: File name too long"),
            ("lustre.none", 22, "pool_new: poolname cannot be 'none'"),
        ] {
            let fault = names("pool_new", text).unwrap_err();
            assert_eq!((fault.code, fault.text.as_str()), (code, said));
        }
    }
}
