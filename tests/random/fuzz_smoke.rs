//! The fuzz targets for a second each.

#[test]
fn trace_reader() {
    arbtest::arbtest(|u| {
        if u.arbitrary()? {
            regraph_testing::trace_reader(&regraph_testing::trace_text(u)?);
        } else {
            regraph_testing::trace_reader(u.bytes(u.len())?);
        }
        Ok(())
    })
    .budget_ms(1_000);
}
