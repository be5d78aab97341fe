//! LNet and its TCP driver as state machines: connections, match entries, PUT, GET, ACK, REPLY.
