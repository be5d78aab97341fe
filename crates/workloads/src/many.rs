//! Many files in one directory.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use sheen_types::HashSet;

use crate::{Context, Outcome, Size, ensure};

/// How many files each size has.
pub fn count(size: Size) -> usize {
    size.of(500, 15_000, 100_000)
}

/// Creates, lists, looks at and removes `count` files in one directory below `top`.
pub fn run(top: &Path, count: usize) -> Outcome {
    let folder = crate::folder(top, "many")?;
    create(&folder, count)?;
    list(&folder, count)?;
    look(&folder, count)?;
    remove(&folder, count)
}

/// Creates the files; every hundredth holds its own name.
pub fn create(folder: &Path, count: usize) -> Outcome {
    for number in 0..count {
        let path = name(folder, number);
        let mut file = File::create_new(&path).context(path.display())?;
        if number % 100 == 0 {
            file.write_all(expected(number).as_bytes()).context(path.display())?;
        }
    }
    Ok(())
}

/// Lists the directory: every name once, no other.
pub fn list(folder: &Path, count: usize) -> Outcome {
    let mut seen: HashSet<_> = HashSet::default();
    seen.reserve(count);
    for entry in fs::read_dir(folder).context(folder.display())? {
        let entry = entry.context(folder.display())?;
        let kind = entry.file_type().context(entry.path().display())?;
        ensure(kind.is_file(), || format!("{}: {kind:?}", entry.path().display()))?;
        let path = entry.path();
        if !seen.insert(path.clone()) {
            return Err(format!("{}: listed twice", path.display()));
        }
    }
    ensure(seen.len() == count, || format!("{} of {count} files listed", seen.len()))?;
    match (0..count).find(|number| !seen.contains(&name(folder, *number))) {
        Some(number) => Err(format!("{}: not listed", name(folder, number).display())),
        None => Ok(()),
    }
}

/// Looks at every file, and into every one that holds something.
pub fn look(folder: &Path, count: usize) -> Outcome {
    for number in 0..count {
        let path = name(folder, number);
        let size = path.metadata().context(path.display())?.len();
        let wanted = if number % 100 == 0 { expected(number) } else { String::new() };
        ensure(size == wanted.len() as u64, || format!("{}: {size} bytes", path.display()))?;
        if !wanted.is_empty() {
            let text = fs::read_to_string(&path).context(path.display())?;
            ensure(text == wanted, || format!("{}: holds {text:?}", path.display()))?;
        }
    }
    Ok(())
}

/// Removes the files and their directory, which must then be empty.
pub fn remove(folder: &Path, count: usize) -> Outcome {
    for number in 0..count {
        let path = name(folder, number);
        fs::remove_file(&path).context(path.display())?;
    }
    let left = fs::read_dir(folder).context(folder.display())?.count();
    ensure(left == 0, || format!("{left} names left in an emptied directory"))?;
    fs::remove_dir(folder).context(folder.display())?;
    ensure(!folder.exists(), || format!("{}: removed and still there", folder.display()))
}

fn name(folder: &Path, number: usize) -> PathBuf {
    folder.join(expected(number))
}

fn expected(number: usize) -> String {
    format!("file-{number:06}")
}
