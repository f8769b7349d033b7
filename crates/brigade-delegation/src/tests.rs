//! The tools of both audiences, side by side.
