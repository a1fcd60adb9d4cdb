//! The shared library exports the header's calls and nothing else.

use std::collections::BTreeSet;

use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSymbol};

#[test]
fn every_exported_symbol_is_a_call_of_the_header() {
    let library = std::fs::read(crate::support::libraries().join("libregraph_c.so")).unwrap();
    let library = ElfFile64::<Endianness>::parse(&*library).unwrap();
    let exported: BTreeSet<_> = library
        .dynamic_symbols()
        .filter(|symbol| symbol.is_definition() && symbol.is_global())
        .map(|symbol| symbol.name().unwrap().to_owned())
        .collect();
    let header = std::fs::read_to_string(crate::support::include().join("regraph.h")).unwrap();
    assert!(exported.len() > 50, "{exported:?}");
    for name in exported {
        assert!(name.starts_with("regraph_"), "{name} is exported");
        assert!(header.contains(&format!("{name}(")), "{name} is exported and in no header");
    }
}

/// Programs ask for the version that they were linked to.
#[test]
fn the_shared_library_has_its_version_in_its_name() {
    let bytes = std::fs::read(crate::support::libraries().join("libregraph_c.so")).unwrap();
    let file = ElfFile64::<Endianness>::parse(&*bytes).unwrap();
    let (endian, sections) = (file.endian(), file.elf_section_table());
    let (entries, link) = sections.dynamic(endian, &*bytes).unwrap().unwrap();
    let strings = sections.strings(endian, &*bytes, link).unwrap();
    let name = entries
        .iter()
        .find(|entry| entry.d_tag.get(endian) == object::elf::DT_SONAME)
        .and_then(|entry| strings.get(entry.d_val.get(endian) as u32).ok());
    let expected = crate::support::so_name();
    assert_eq!(name.map(String::from_utf8_lossy).as_deref(), Some(&*expected));
}
