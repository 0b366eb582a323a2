//! Computes mean, standard deviation and confidence interval of a few numbers.

/// The mean of a sample and, for at least two numbers, its spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SampleSummary {
    /// Mean.
    pub mean: f64,
    /// Standard deviation of the sample (n - 1).
    pub sd: Option<f64>,
    /// Half of the 95 % confidence interval of the mean, by Student's t.
    pub ci95: Option<f64>,
}

/// Summarises `values`; returns `None` for no values.
#[must_use]
pub fn summary(values: &[f64]) -> Option<SampleSummary> {
    let n = values.len() as f64;
    if values.is_empty() {
        return None;
    }
    // Compute the mean around the first value, so that equal numbers have exactly their value as mean and no
    // spread.
    let first = values[0];
    let mean = first + values.iter().map(|v| v - first).sum::<f64>() / n;
    if values.len() == 1 {
        return Some(SampleSummary { mean, sd: None, ci95: None });
    }
    let sd = (values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / (n - 1.0)).sqrt();
    Some(SampleSummary { mean, sd: Some(sd), ci95: Some(t95(values.len() - 1) * sd / n.sqrt()) })
}

/// Returns the sample variance (n - 1) of at least two numbers.
#[must_use]
pub fn variance(values: &[f64]) -> Option<f64> {
    Some(summary(values)?.sd?.powi(2))
}

/// Returns half of the 95 % confidence interval of any statistic of `n` runs, by the jackknife: `without` is
/// the statistic without run i. For a mean this is Student's interval; for a statistic that is not smooth,
/// such as a settling time, it is a rough one.
pub(crate) fn jackknife95(n: usize, without: impl Fn(usize) -> Option<f64>) -> Option<f64> {
    let values = (0..n).map(without).collect::<Option<Vec<f64>>>()?;
    let sd = summary(&values)?.sd?;
    Some(t95(n - 1) * sd * (n as f64 - 1.0) / (n as f64).sqrt())
}

/// The two-sided 95 % quantiles of Student's t for 1 to 30 degrees of freedom.
const T95: [f64; 30] = [
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281, 2.2010, 2.1788, 2.1604,
    2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860, 2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555,
    2.0518, 2.0484, 2.0452, 2.0423,
];

/// Returns the two-sided 95 % quantile of Student's t. Beyond the table it uses the expansion in 1/df around
/// the normal quantile (Abramowitz and Stegun, 26.7.5), with an error of at most 10⁻⁵ there.
#[must_use]
pub fn t95(degrees: usize) -> f64 {
    if let Some(t) = degrees.checked_sub(1).and_then(|index| T95.get(index)) {
        return *t;
    }
    let (z, n) = (1.959_963_985_f64, degrees.max(1) as f64);
    let (z3, z5) = (z.powi(3), z.powi(5));
    z + (z3 + z) / (4.0 * n) + (5.0 * z5 + 16.0 * z3 + 3.0 * z) / (96.0 * n * n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries() {
        assert_eq!(summary(&[]), None);
        assert_eq!(summary(&[7.0]), Some(SampleSummary { mean: 7.0, sd: None, ci95: None }));
        let s = summary(&[1.0, 2.0, 3.0, 4.0]).expect("four");
        assert_eq!(s.mean, 2.5);
        assert!((s.sd.expect("sd") - 1.290_994).abs() < 1e-6);
        assert!((s.ci95.expect("ci") - 3.1824 * 1.290_994 / 2.0).abs() < 1e-4);
        let same = summary(&[0.1; 10]).expect("ten");
        assert_eq!((same.mean, same.sd, same.ci95), (0.1, Some(0.0), Some(0.0)));
    }

    #[test]
    fn the_jackknife_of_a_mean_is_students_interval() {
        let values = [1.0, 2.0, 4.0, 9.0];
        let without = |i: usize| [&values[..i], &values[i + 1..]].concat();
        let mean = jackknife95(4, |i| Some(summary(&without(i))?.mean)).expect("four");
        assert!((mean - summary(&values).expect("four").ci95.expect("ci")).abs() < 1e-9);
        assert!((variance(&values).expect("four") - 12.666_667).abs() < 1e-6);
        assert!(jackknife95(4, |i| variance(&without(i))).expect("four") > 12.0);
        assert_eq!((jackknife95(1, |_| Some(1.0)), variance(&[1.0])), (None, None));
        assert_eq!(jackknife95(3, |i| (i > 0).then_some(1.0)), None);
    }

    #[test]
    fn quantiles() {
        // Quantiles beyond the table, from published tables.
        for (degrees, t) in [(1, 12.7062), (30, 2.0423), (31, 2.0395), (60, 2.0003), (120, 1.9799)] {
            assert!((t95(degrees) - t).abs() < 1e-4, "{degrees}: {}", t95(degrees));
        }
        assert!((1..1_000).all(|n| t95(n + 1) < t95(n)));
    }
}
