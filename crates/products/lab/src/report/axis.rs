//! Maps values to pixels, with ticks at round numbers.

use super::text::number;

/// Most ticks of an axis, whatever the caller asks for.
const TICKS_MAX: usize = 24;

/// A range of values with round numbers to mark.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Axis {
    /// Lower end of the range.
    pub(super) min: f64,
    /// Upper end of the range, above the lower one.
    pub(super) max: f64,
    /// Values to mark.
    pub(super) ticks: Vec<f64>,
    step: f64,
}

impl Axis {
    /// Creates an axis from `min` to `max` exactly, with about `count` ticks.
    pub(super) fn exact(min: f64, max: f64, count: usize) -> Self {
        let (min, max) = proper(min, max);
        Self::with_step(min, max, step(max - min, count))
    }

    fn with_step(min: f64, max: f64, step: f64) -> Self {
        let first = (min / step - 1e-9).ceil();
        let ticks = (0..TICKS_MAX).map(|i| (first + i as f64) * step);
        // Adding zero turns -0.0 into 0.0.
        let ticks = ticks.take_while(|tick| *tick <= max + step * 1e-9).map(|tick| tick + 0.0).collect();
        Self { min, max, ticks, step }
    }

    /// Creates an axis that extends beyond `min` and `max` to end on ticks, with about `count` ticks.
    pub(super) fn round(min: f64, max: f64, count: usize) -> Self {
        let (min, max) = proper(min, max);
        let step = step(max - min, count);
        Self::with_step((min / step + 1e-9).floor() * step, (max / step - 1e-9).ceil() * step, step)
    }

    /// Returns the place of `value` between the pixels `from` and `to`; an end if the value is outside.
    pub(super) fn at(&self, value: f64, from: f64, to: f64) -> f64 {
        from + ((value - self.min) / (self.max - self.min)).clamp(0.0, 1.0) * (to - from)
    }

    /// Formats a tick.
    pub(super) fn label(&self, tick: f64) -> String {
        let most = self.min.abs().max(self.max.abs());
        let (by, suffix) = match most {
            _ if !(1e-5..1e12).contains(&most) => return format!("{tick:e}"),
            _ if most >= 1e9 => (1e9, "G"),
            _ if most >= 1e6 => (1e6, "M"),
            _ if most >= 1e4 => (1e3, "k"),
            _ => (1.0, ""),
        };
        if tick == 0.0 {
            return "0".into();
        }
        let decimals = (-(self.step / by).log10().floor()).clamp(0.0, 8.0) as usize;
        number(tick / by, decimals) + suffix
    }
}

/// Returns ends that can be drawn: finite, distinct and in order.
fn proper(a: f64, b: f64) -> (f64, f64) {
    let (min, max) = (a.min(b), a.max(b));
    let size = min.abs().max(max.abs());
    // This also excludes sizes at which doubles have no room for steps.
    if !(1e-290..1e290).contains(&size) || a.is_nan() || b.is_nan() {
        return (0.0, 1.0);
    }
    // The ends are too close for doubles and eyes.
    if max - min < size * 1e-6 {
        return (min - size * 0.01, max + size * 0.01);
    }
    (min, max)
}

/// Returns the step of 1, 2 or 5 times a power of ten that is nearest to `count` steps of `span`.
fn step(span: f64, count: usize) -> f64 {
    let rough = span / count.clamp(1, TICKS_MAX / 3) as f64;
    let power = 10_f64.powf(rough.log10().floor());
    // The limits are the geometric means of neighbours: √2, √10, √50.
    let limits = [(1.414, 1.0), (3.162, 2.0), (7.071, 5.0)];
    power * limits.into_iter().find(|(limit, _)| rough <= limit * power).map_or(10.0, |(_, by)| by)
}

/// Returns the least and the greatest of `values`, without values that are not finite.
pub(super) fn range(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values
        .filter(|v| v.is_finite())
        .fold(None, |range, v| Some(range.map_or((v, v), |(min, max): (f64, f64)| (min.min(v), max.max(v)))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<String> {
        axis.ticks.iter().map(|t| axis.label(*t)).collect()
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(labels(&Axis::round(0.0, 19.3, 4)), ["0", "5", "10", "15", "20"]);
        assert_eq!(labels(&Axis::exact(48.7, 51.2, 4)), ["49.0", "49.5", "50.0", "50.5", "51.0"]);
        assert_eq!(
            labels(&Axis::round(0.0, 0.012, 4)),
            ["0", "0.002", "0.004", "0.006", "0.008", "0.010", "0.012"]
        );
        assert_eq!(labels(&Axis::round(0.0, 19_000.0, 4)), ["0", "5k", "10k", "15k", "20k"]);
        assert_eq!(labels(&Axis::round(-3.0, 3.0, 3)), ["-4", "-2", "0", "2", "4"]);
        assert_eq!(labels(&Axis::exact(0.0, 60.0, 4)), ["0", "20", "40", "60"]);
    }

    #[test]
    fn any_range_can_be_drawn() {
        let ends = [0.0, -0.0, 1.0, -1.0, 1e-300, 1e300, f64::MAX, f64::MIN, f64::NAN, f64::INFINITY, 5e-324];
        for (min, max) in ends.iter().flat_map(|a| ends.iter().map(move |b| (*a, *b))) {
            for axis in [Axis::exact(min, max, 4), Axis::round(min, max, 4)] {
                assert!(axis.max > axis.min, "{min} {max} {axis:?}");
                assert!(axis.ticks.len() <= TICKS_MAX && axis.ticks.iter().all(|t| t.is_finite()));
                assert!(axis.ticks.iter().all(|t| (0.0..=10.0).contains(&axis.at(*t, 0.0, 10.0))));
                let _ = labels(&axis);
            }
        }
        assert_eq!(range([f64::NAN, 3.0, f64::INFINITY, -1.0].into_iter()), Some((-1.0, 3.0)));
        assert_eq!(range([f64::NAN].into_iter()), None);
    }
}
