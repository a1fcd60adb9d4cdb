//! Axes with round steps.

/// An axis from 0 with marks at multiples of its step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Axis {
    pub(super) step: u64,
    /// Where the axis ends.
    pub(super) top: u64,
}

impl Axis {
    /// An axis that ends at `top` and has at most `marks` steps.
    pub(super) fn up_to(top: u64, marks: u64) -> Self {
        let top = top.max(1);
        Self { step: round(top.div_ceil(marks)), top }
    }

    /// The multiples of the step, from 0.
    pub(super) fn marks(self) -> impl Iterator<Item = u64> {
        (0..=self.top / self.step).map(move |mark| mark * self.step)
    }
}

/// The least 1, 2 or 5 times a power of ten that is not below `least`.
fn round(least: u64) -> u64 {
    let mut power: u64 = 1;
    loop {
        for digit in [1, 2, 5] {
            let step = power.saturating_mul(digit);
            if step >= least {
                return step;
            }
        }
        power = power.saturating_mul(10);
    }
}

/// A unit of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    pub(super) name: &'static str,
    pub(super) bytes: u64,
}

impl Unit {
    const ALL: [Self; 5] = [
        Self { name: "TiB", bytes: 1 << 40 },
        Self { name: "GiB", bytes: 1 << 30 },
        Self { name: "MiB", bytes: 1 << 20 },
        Self { name: "KiB", bytes: 1 << 10 },
        Self { name: "B", bytes: 1 },
    ];

    /// A figure in this unit, without its name.
    pub(super) fn figure(self, bytes: u64) -> String {
        match self.bytes {
            1 => bytes.to_string(),
            unit => format!("{:.1}", bytes as f64 / unit as f64),
        }
    }

    /// A figure with the unit's name.
    pub(super) fn text(self, bytes: u64) -> String {
        format!("{} {}", self.figure(bytes), self.name)
    }
}

/// An axis of bytes up to the mark above `highest`, and the unit of its marks: the largest of which
/// every mark is a whole multiple.
pub(super) fn bytes(highest: u64) -> (Axis, Unit) {
    const MARKS: u64 = 5;
    let fits = |unit: &Unit| highest / MARKS >= unit.bytes;
    let unit = Unit::ALL.into_iter().find(fits).unwrap_or(Unit::ALL[Unit::ALL.len() - 1]);
    let Axis { step, top } = Axis::up_to(highest.div_ceil(unit.bytes), MARKS);
    let step_bytes = step * unit.bytes;
    (Axis { step: step_bytes, top: top.div_ceil(step) * step_bytes }, unit)
}

/// A number with its digits in groups of three.
pub(super) fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round_and_few() {
        for (highest, step, top, name) in [
            (0, 1, 1, "B"),
            (4096, 1000, 5000, "B"),
            (48 << 20, 10 << 20, 50 << 20, "MiB"),
            (536 << 20, 200 << 20, 600 << 20, "MiB"),
            (5000 << 20, 1000 << 20, 5000 << 20, "MiB"),
            (8 << 30, 2 << 30, 8 << 30, "GiB"),
            ((8 << 30) + 1, 2 << 30, 10 << 30, "GiB"),
        ] {
            let (axis, unit) = bytes(highest);
            assert_eq!((axis.step, axis.top, unit.name), (step, top, name), "{highest}");
            assert!(axis.marks().count() <= 6);
        }
    }

    #[test]
    fn an_axis_of_operations_ends_where_they_end() {
        assert_eq!(Axis::up_to(2588, 4).marks().collect::<Vec<_>>(), [0, 1000, 2000]);
        assert_eq!(Axis::up_to(0, 4).marks().collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn digits_stand_in_threes() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }
}
