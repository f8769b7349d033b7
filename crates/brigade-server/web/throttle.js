// Work that need not happen with every frame.

/**
 * Returns a function that runs the work now if it has not run lately, else once the pause is over.
 * @param {number} pauseMs
 * @param {() => void} work
 */
export function throttle(pauseMs, work) {
  let lastRun = -Infinity;
  let isWaiting = false;
  const run = () => {
    isWaiting = false;
    lastRun = performance.now();
    work();
  };
  return () => {
    if (isWaiting) return;
    const pause = lastRun + pauseMs - performance.now();
    if (pause <= 0) {
      run();
      return;
    }
    isWaiting = true;
    setTimeout(run, pause);
  };
}
