//! Implements loss in bursts.

use crate::Rng;

/// The model of Gilbert and Elliott: a link is in a good or a bad state, and loses more packets in the bad
/// one.
///
/// At each packet the state may change; then the packet is lost with the probability of the present state.
/// The link begins in the good state. Source: Elliott, "Estimates of error rates for codes on burst-noise
/// channels", Bell System Technical Journal 42(5), 1963.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GilbertElliott {
    /// The probability per packet that a good link turns bad.
    pub to_bad: f64,
    /// The probability per packet that a bad link turns good. A burst lasts 1/`to_good` packets on average.
    pub to_good: f64,
    /// The probability of loss in the good state.
    pub loss_good: f64,
    /// The probability of loss in the bad state.
    pub loss_bad: f64,
}

impl GilbertElliott {
    /// Makes Gilbert's model, which loses every packet in the bad state and none in the good one. It loses
    /// the share `loss` (at least 0, below 1) of all packets, in bursts of `burst_packets` (1 or more) on
    /// average.
    #[must_use]
    pub fn bursts(loss: f64, burst_packets: f64) -> Self {
        let to_good = 1.0 / burst_packets.max(1.0);
        Self { to_bad: to_good * loss / (1.0 - loss), to_good, loss_good: 0.0, loss_bad: 1.0 }
    }

    /// Returns the share of packets lost in the long run, 0 to 1.
    #[must_use]
    pub fn mean_loss(&self) -> f64 {
        let changes = self.to_bad + self.to_good;
        let bad = if changes > 0.0 { self.to_bad / changes } else { 0.0 };
        bad * self.loss_bad + (1.0 - bad) * self.loss_good
    }
}

/// Holds the state of the model on one link.
#[derive(Clone, Debug)]
pub(crate) struct GilbertState {
    model: GilbertElliott,
    bad: bool,
    rng: Rng,
}

impl GilbertState {
    pub(crate) const fn new(model: GilbertElliott, rng: Rng) -> Self {
        Self { model, bad: false, rng }
    }

    /// Advances the model by a packet and returns whether that packet is lost.
    pub(crate) fn next_is_lost(&mut self) -> bool {
        let turn = if self.bad { self.model.to_good } else { self.model.to_bad };
        self.bad ^= self.rng.chance(turn);
        self.rng.chance(if self.bad { self.model.loss_bad } else { self.model.loss_good })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_and_bursts_are_as_asked() {
        for (loss, burst) in [(0.01, 1.0), (0.01, 5.0), (0.2, 3.0)] {
            let model = GilbertElliott::bursts(loss, burst);
            assert!((model.mean_loss() - loss).abs() < 1e-12);
            let mut gilbert = GilbertState::new(model, Rng::new(9));
            let n = 1_000_000;
            let seen: Vec<bool> = (0..n).map(|_| gilbert.next_is_lost()).collect();
            let lost = seen.iter().filter(|lost| **lost).count() as f64;
            let bursts = seen.windows(2).filter(|pair| !pair[0] && pair[1]).count() as f64;
            // Successive packets depend on each other, so the variance is that of bursts.
            let sigma = (n as f64 * loss * (1.0 - loss) * (2.0 * burst - 1.0).max(1.0)).sqrt();
            assert!((lost - n as f64 * loss).abs() < 4.0 * sigma, "{lost} at {loss}, {burst}");
            // A burst of one packet may directly follow another; then the two count as one.
            assert!((lost / bursts / burst - 1.0).abs() < 0.06, "{} at {burst}", lost / bursts);
        }
    }

    #[test]
    fn both_states_lose() {
        let model = GilbertElliott { to_bad: 0.1, to_good: 0.3, loss_good: 0.02, loss_bad: 0.5 };
        assert!((model.mean_loss() - (0.25 * 0.5 + 0.75 * 0.02)).abs() < 1e-12);
        let mut gilbert = GilbertState::new(model, Rng::new(2));
        let lost = (0..1_000_000).filter(|_| gilbert.next_is_lost()).count() as f64;
        assert!((lost / 1e6 - model.mean_loss()).abs() < 0.003, "{lost}");
    }
}
