// The server's clock. Ages and bars compare the server's times with now, and a phone's clock may be
// wrong by minutes.

/** A smaller difference is not told apart from the delay of an answer. */
const MIN_SKEW_MS = 3000;

let skewMs = 0;

/** Returns the time of the server, in milliseconds since the epoch. */
export function serverNow() {
  return Date.now() + skewMs;
}

/** Notes the time of an answer. @param {Response} response */
export function noteServerTime(response) {
  const time = Date.parse(response.headers.get('date') ?? '');
  if (Number.isNaN(time)) return;
  const skew = time - Date.now();
  skewMs = Math.abs(skew) < MIN_SKEW_MS ? 0 : skew;
}
