//! The table of `cargo xtask mutants`.

use std::path::Path;

/// A text that is not in its file any more would take no rule out.
#[test]
fn each_mutant_changes_one_place_and_names_a_test() {
    let root = Path::new(crate::ROOT);
    assert_eq!(xtask::mutants::complaints(root).unwrap(), [""; 0]);
}
