-- The first thing that a claim or a beat writes: that its terms are in force. It takes memory, so that a server which
-- is full or read-only is known before anything else.

is_new_policy = write('ZADD', KEY.policy, now_text, ARGV[1]) == 1
