//! What a client hears when the engine takes no more.

use crate::engine::SubmitFailure;
use headrace_dialect::refusal::{Cause, Refusal};

/// A refused submission, in the words of clients.
pub(crate) fn submit_refusal(failure: &SubmitFailure) -> Refusal {
    use headrace_scheduler::SubmitError;
    match failure {
        SubmitFailure::Queue(SubmitError::QueueFull { .. }) => Refusal::overloaded(),
        SubmitFailure::Queue(SubmitError::DeadlineTooClose { predicted }) => {
            let message = if predicted.is_zero() {
                "Model is overloaded: its `timeout` is over".to_owned()
            } else {
                let seconds = predicted.as_secs_f32().ceil();
                format!(
                    "Model is overloaded: it would wait for about {seconds} s, beyond its `timeout`"
                )
            };
            Refusal::new(Cause::Overloaded, message).with_retry_after(*predicted)
        }
        SubmitFailure::Queue(SubmitError::TooLong { .. }) => Refusal::new(
            Cause::ContextLength,
            format!("Input validation error: {failure}"),
        ),
        SubmitFailure::Queue(SubmitError::Empty | SubmitError::Duplicate(_))
        | SubmitFailure::Invalid(_) => Refusal::new(Cause::Internal, failure.to_string()),
        SubmitFailure::Draining | SubmitFailure::NotReady | SubmitFailure::EngineGone => {
            Refusal::new(Cause::Unavailable, failure.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headrace_dialect::refusal::Dialect;

    #[test]
    fn a_wait_beyond_the_timeout_is_429_with_that_wait() {
        use headrace_scheduler::SubmitError;
        let predicted = std::time::Duration::from_millis(7_200);
        let refusal = submit_refusal(&SubmitFailure::Queue(SubmitError::DeadlineTooClose {
            predicted,
        }));
        assert_eq!(refusal.status(Dialect::Native), 429);
        assert_eq!(refusal.status(Dialect::OpenAi), 429);
        assert_eq!(refusal.retry_after(), Some(predicted));
        assert_eq!(
            refusal.message(),
            "Model is overloaded: it would wait for about 8 s, beyond its `timeout`"
        );
        let full = SubmitFailure::Queue(SubmitError::QueueFull { waiting: 3 });
        assert_eq!(submit_refusal(&full).message(), "Model is overloaded");
        assert_eq!(submit_refusal(&full).retry_after(), None, "that of all");
    }
}
