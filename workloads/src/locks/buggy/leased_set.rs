//! Scripts of the ways of locking that keep their owners in a sorted set, by the end of their leases on the
//! server's clock.

/// Comes before each of the others: what has run out is taken out; `now` is the server's time.
pub const NOW: &str = "
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)";

pub const RENEW: &str = "
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return 0 end
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
return 1";

/// Needs no `NOW`.
pub const LEAVE: &str = "return redis.call('ZREM', KEYS[1], ARGV[1])";
