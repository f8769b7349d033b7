//! The agent loop: context, model, tool calls, results, one turn at a time.
