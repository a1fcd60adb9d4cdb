//! The fuzz targets, with some cases each.

use crate::cases::cases;

#[test]
fn trace_reader() {
    cases(400, 32..=65_536, |u| {
        if u.arbitrary()? {
            regraph_testing::trace_reader(&regraph_testing::trace_text(u)?);
        } else {
            regraph_testing::trace_reader(u.bytes(u.len())?);
        }
        Ok(())
    });
}

#[test]
fn readers() {
    for (read, text) in regraph_testing::texts() {
        read(&text);
        cases(200, 32..=65_536, |u| {
            if u.ratio(3, 4)? {
                read(&regraph_testing::edited(u, &text)?);
            } else {
                read(u.bytes(u.len())?);
            }
            Ok(())
        });
    }
}
