package engine

// TakesWebhooks reports whether webhooks are sent to an address.
var TakesWebhooks = takesWebhooks
