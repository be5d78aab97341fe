//! Tables that a person can read: no cell of them holds a paragraph.

use crate::shell::{Outcome, root};

/// Characters of a cell. What is longer is prose, and is read better outside of a table.
const CELL_CHARS_MAX: usize = 200;

/// The documents whose tables are checked.
const DOCUMENTS: [&str; 2] = ["ARCHITECTURE.md", "docs/SEMANTICS.md"];

/// Adds a fault for each cell that is too long.
pub(crate) fn check(faults: &mut Vec<String>) -> Outcome {
    for document in DOCUMENTS {
        let text = std::fs::read_to_string(root().join(document))
            .map_err(|error| format!("{document}: {error}"))?;
        faults.extend(long_cells(&text).into_iter().map(|(line, length)| {
            format!("{document}:{line}: a cell of {length} characters, at most {CELL_CHARS_MAX}")
        }));
    }
    Ok(())
}

/// Line and length of each cell that is too long.
fn long_cells(text: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let Some(row) = line.trim_start().strip_prefix('|') else { continue };
        // `\|` does not end a cell.
        let row = row.replace("\\|", "¦");
        let lengths = row.split('|').map(|cell| cell.trim().chars().count());
        let long = lengths.filter(|length| *length > CELL_CHARS_MAX);
        found.extend(long.map(|length| (index + 1, length)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_of_more_than_200_characters_is_found() {
        let most = "ü".repeat(CELL_CHARS_MAX);
        let prose = "x".repeat(1000);
        let text =
            format!("{prose}\n| a | {most} |\n| {most}y | b |\n| a\\|{most} |  {prose}  |\n");
        assert_eq!(long_cells(&text), [(3, 201), (4, 202), (4, 1000)]);
    }

    #[test]
    fn the_documents_have_no_long_cells() {
        let mut faults = Vec::new();
        assert_eq!(check(&mut faults), Ok(()));
        assert_eq!(faults, Vec::<String>::new());
    }
}
