//! `docs/bug-cases.md` has each row of the list once, and names tests that exist.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends by panicking"
)]

use std::collections::BTreeSet;
use std::path::Path;

/// Rows of each section of the list, from the first on.
const ROWS: [u32; 10] = [10, 7, 5, 12, 10, 11, 9, 17, 9, 4];

#[test]
fn every_named_test_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/bug-cases.md")).unwrap();
    let mut rows = BTreeSet::new();
    let mut tests = 0;
    for line in page.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        if cells[0] == "row" || cells[0].starts_with("---") {
            continue;
        }
        for row in cells[0].split(", ") {
            assert!(rows.insert(row.to_owned()), "{row} twice");
        }
        // What has no test says that its part is not built.
        let is_later = cells[1].starts_with("later, ");
        assert_eq!(is_later, cells[2].is_empty(), "{line}");
        // Every second part stands between backquotes.
        for named in cells[2].split('`').skip(1).step_by(2) {
            let (file, name) = named.split_once(": ").unwrap();
            let text = std::fs::read_to_string(root.join(file))
                .unwrap_or_else(|error| panic!("{file}: {error}"));
            let is_there = [format!("fn {name}("), format!("def {name}(")]
                .iter()
                .any(|head| text.contains(head));
            assert!(is_there, "{file} has no {name}");
            tests += 1;
        }
    }
    let of_section = |(section, count): (usize, u32)| {
        (1..=count).map(move |row| format!("{}.{row}", section + 1))
    };
    let list = ROWS.into_iter().enumerate().flat_map(of_section);
    assert_eq!(rows, list.collect::<BTreeSet<_>>());
    assert!(tests > 90, "{tests}");
}
