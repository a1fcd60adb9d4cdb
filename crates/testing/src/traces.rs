//! The trace reader on any input.

use arbitrary::{Arbitrary, Result, Unstructured};

/// Reads any bytes as a trace. What can be read must survive a round trip.
///
/// # Panics
/// Where the reader or the writer is wrong.
pub fn trace_reader(data: &[u8]) {
    let Ok(first) = regraph_trace::read(data) else {
        return;
    };
    let mut text = Vec::new();
    regraph_trace::write(&first, &mut text).expect("writing into memory succeeds");
    let second = regraph_trace::read(text.as_slice()).expect("what was written can be read");
    assert_eq!(first, second, "a round trip changes nothing");
}

/// A text of lines that are operations with small numbers, most of them in order: random bytes
/// alone rarely get past the first brace.
pub fn trace_text(u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let mut text = String::from("{\"op\":\"begin\",\"stream\":0,\"pool\":0}\n");
    let mut nodes = 0u32;
    let mut blocks = 0u32;
    while !u.is_empty() && text.len() < 1 << 16 {
        let small = |u: &mut Unstructured<'_>, limit: u32| u.int_in_range(0..=limit.max(1));
        let stream = u.int_in_range(0..=3)?;
        let line = match u.int_in_range(0..=9)? {
            0 => {
                nodes += 1;
                format!("{{\"op\":\"kernel\",\"stream\":{stream}}}")
            }
            1 => {
                let line = format!(
                    "{{\"op\":\"node\",\"node\":{nodes},\"after\":[{}],\"kind\":2}}",
                    small(u, nodes)?
                );
                nodes += 1;
                line
            }
            2 => format!(
                "{{\"op\":\"terminals\",\"stream\":{stream},\"nodes\":[{}]}}",
                small(u, nodes)?
            ),
            3 => format!("{{\"op\":\"wait\",\"stream\":{stream},\"on\":{}}}", small(u, 3)?),
            4 | 5 => {
                let line = format!(
                    "{{\"op\":\"alloc\",\"id\":{blocks},\"bytes\":{},\"stream\":{stream}}}",
                    u32::arbitrary(u)?
                );
                blocks += 1;
                line
            }
            6 => format!("{{\"op\":\"use\",\"id\":{},\"stream\":{stream}}}", small(u, blocks)?),
            7 => format!("{{\"op\":\"free\",\"id\":{}}}", small(u, blocks)?),
            8 => "{\"op\":\"end\"}\n{\"op\":\"begin\",\"stream\":1,\"pool\":1}".to_owned(),
            _ => String::from_utf8_lossy(u.bytes(u.len().min(4))?).into_owned(),
        };
        text.push_str(&line);
        text.push('\n');
    }
    text.push_str("{\"op\":\"end\"}\n");
    Ok(text.into_bytes())
}
