package main

// turnsEdits let the connections between a server and its guests carry a packet each way for
// a question and its answer. The files under lay say how.
var turnsEdits = []edit{
	{
		Why:   "an acknowledgement may wait",
		File:  "pkg/tcpip/transport/tcp/endpoint.go",
		At:    "\tsnd *sender `state:\"wait\"`\n",
		After: "\n\t// +checklocks:mu\n\tackLater ackLater `state:\"nosave\"`\n",
	},
	{
		Why:     "where one was sent at once",
		File:    "pkg/tcpip/transport/tcp/connect.go",
		At:      "\t// Send an ACK for all processed packets if needed.\n\tif e.rcv.RcvNxt != e.snd.MaxSentAck {\n\t\te.snd.sendAck()\n",
		Replace: "\t// Send an ACK for all processed packets if needed.\n\tif e.rcv.RcvNxt != e.snd.MaxSentAck {\n\t\te.acknowledge()\n",
	},
	{
		Why:     "if it is for one segment",
		File:    "pkg/tcpip/transport/tcp/connect.go",
		At:      "\t\tcont, err := e.handleSegmentLocked(s)\n",
		Replace: "\t\te.ackLater.came(s)\n\t\tcont, err := e.handleSegmentLocked(s)\n",
	},
	{
		Why:     "until there is data to go with",
		File:    "pkg/tcpip/transport/tcp/snd.go",
		At:      "\ts.MaxSentAck = rcvNxt\n\n\t// We need to clone",
		Replace: "\ts.MaxSentAck = rcvNxt\n\ts.ep.ackLater.acknowledged()\n\n\t// We need to clone",
	},
	{
		Why:     "or it has gone alone",
		File:    "pkg/tcpip/transport/tcp/snd.go",
		At:      "\ts.MaxSentAck = rcvNxt\n\n\treturn s.ep.sendEmptyRaw(",
		Replace: "\ts.MaxSentAck = rcvNxt\n\ts.ep.ackLater.acknowledged()\n\n\treturn s.ep.sendEmptyRaw(",
	},
	{
		Why:   "what comes in is handled where it is, but not while the stack is being saved",
		File:  "pkg/tcpip/transport/tcp/dispatcher.go",
		At:    "\tmu         dispatcherMutex `state:\"nosave\"`\n",
		After: "\there       here            `state:\"nosave\"`\n",
	},
	{
		Why:     "so it is queued for nobody else",
		File:    "pkg/tcpip/transport/tcp/dispatcher.go",
		At:      "\tif !ep.isOwnedByUser() {\n\t\td.selectProcessor(id).queueEndpoint(ep)\n",
		Replace: "\tif !ep.isOwnedByUser() && !ep.takesTurns() {\n\t\td.selectProcessor(id).queueEndpoint(ep)\n",
	},
	{
		Why:     "and is handled",
		File:    "pkg/tcpip/stack/transport_demuxer.go",
		At:      "\t\tqueuedProtocol.QueuePacket(transEP, id, pkt)\n\t\tepsByNIC.mu.RUnlock()\n",
		Replace: "\t\tqueuedProtocol.QueuePacket(transEP, id, pkt)\n\t\tepsByNIC.mu.RUnlock()\n\t\tqueuedProtocol.HandleQueued(transEP)\n",
	},
	{
		Why:   "once the demultiplexer holds nothing",
		File:  "pkg/tcpip/stack/transport_demuxer.go",
		At:    "\tQueuePacket(ep TransportEndpoint, id TransportEndpointID, pkt *PacketBuffer)\n",
		After: "\tHandleQueued(ep TransportEndpoint)\n",
	},
	{
		Why:   "it is being saved from here",
		File:  "pkg/tcpip/transport/tcp/dispatcher.go",
		At:    "func (d *dispatcher) pause() {\n",
		After: "\td.here.set(false)\n",
	},
	{
		Why:   "to here",
		File:  "pkg/tcpip/transport/tcp/dispatcher.go",
		At:    "\td.paused = false\n\td.mu.Unlock()\n",
		After: "\td.here.set(true)\n",
	},
}
