//! The fuzz targets for a second each.

use regraph::fuzzing;

#[test]
fn trace_reader() {
    arbtest::arbtest(|u| {
        if u.arbitrary()? {
            fuzzing::trace_reader(&fuzzing::trace_text(u)?);
        } else {
            fuzzing::trace_reader(u.bytes(u.len())?);
        }
        Ok(())
    })
    .budget_ms(1_000);
}
