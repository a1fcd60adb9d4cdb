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

#[test]
fn readers() {
    for (read, text) in regraph_testing::texts() {
        read(&text);
        arbtest::arbtest(|u| {
            if u.ratio(3, 4)? {
                read(&regraph_testing::edited(u, &text)?);
            } else {
                read(u.bytes(u.len())?);
            }
            Ok(())
        })
        .budget_ms(500);
    }
}
