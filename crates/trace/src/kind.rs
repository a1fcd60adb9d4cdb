//! What a file is that is not the text that was expected.

/// Beginnings of files by what they are, and what helps.
const KINDS: [(&[u8], &str); 10] = [
    (b"\x1f\x8b", "data compressed by gzip (unpack it first: `gzip -dc FILE`)"),
    (b"\x28\xb5\x2f\xfd", "data compressed by zstd (unpack it first: `zstd -dc FILE`)"),
    (b"\xfd7zXZ\0", "data compressed by xz (unpack it first: `xz -dc FILE`)"),
    (b"BZh", "data compressed by bzip2 (unpack it first: `bzip2 -dc FILE`)"),
    (b"\x04\x22\x4d\x18", "data compressed by lz4 (unpack it first: `lz4 -dc FILE`)"),
    (b"PK\x03\x04", "a zip archive (unpack it first: `unzip -p FILE`)"),
    (b"\x7fELF", "a program"),
    (b"\xff\xfe", "text in UTF-16 (UTF-8 is read)"),
    (b"\xfe\xff", "text in UTF-16 (UTF-8 is read)"),
    (b"\x80", "a pickle or other binary data"),
];

/// What an input is that begins so; `None` for what may be text.
pub fn kind(start: &[u8]) -> Option<&'static str> {
    let is_control = |&&byte: &&u8| byte < b' ' && !byte.is_ascii_whitespace() && byte != 0x1b;
    let known = KINDS.iter().find(|(magic, _)| start.starts_with(magic));
    known.map(|(_, kind)| *kind).or_else(|| {
        // A character may be cut in two at the end.
        let invalid = std::str::from_utf8(start).err().is_some_and(|it| it.error_len().is_some());
        (invalid || start.iter().find(is_control).is_some()).then_some("binary data")
    })
}

#[cfg(test)]
mod tests {
    use super::kind;

    #[test]
    fn text_is_none_of_them() {
        for text in ["", "{\"op\":\"end\"}", "a,b\r\n\t1", "grün", "\u{1b}[1m", "BZ", "gr\u{fc}"] {
            assert_eq!(kind(text.as_bytes()), None, "{text:?}");
        }
        // Cut within a character.
        assert_eq!(kind(&"grü".as_bytes()[..3]), None);
    }

    #[test]
    fn compressed_and_binary_data_is_told() {
        let cases: [(&[u8], &str); 6] = [
            (b"\x1f\x8b\x08\0", "gzip"),
            (b"\x28\xb5\x2f\xfd\x24", "zstd"),
            (b"\x7fELF\x02", "program"),
            (b"\x80\x04\x95", "pickle"),
            (b"\0\x01", "binary data"),
            (b"{\"\xc3\x28", "binary data"),
        ];
        for (start, word) in cases {
            assert!(kind(start).unwrap_or_default().contains(word), "{start:?}");
        }
    }
}
