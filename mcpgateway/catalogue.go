package mcpgateway

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// recipe says how a server of the catalogue is had and started.
type recipe struct {
	npm, pypi string            // the package and its version; neither: it came with the gateway
	beside    string            // what else must be taken of pypi's index, for a package that says too little of it
	kind      string            // where it came with the gateway: inNode or inPython
	program   string            // its name among the package's programs
	args      []string          // "{key}" stands for the value of that key, or for each of its values
	env       map[string]string // the variable of each key
	fixed     []string          // NAME=VALUE, always; "{home}" is the account's home
	needs     []string          // keys that must be there
	ignored   []string          // keys that say nothing here
}

// Where the servers lie that came with the gateway, beneath its root.
const (
	inNode   = "node/node_modules/.bin"
	inPython = "python/bin"
)

// catalogue is the servers that are known by name. Names and keys are those that
// clients' types have.
var catalogue = map[string]recipe{
	"duckduckgo":         {kind: inPython, program: "duckduckgo-mcp-server"},
	"fetch":              {kind: inPython, program: "mcp-server-fetch"},
	"filesystem":         {kind: inNode, program: "mcp-server-filesystem", args: []string{"{paths}"}, needs: []string{"paths"}},
	"git":                {kind: inPython, program: "mcp-server-git", ignored: []string{"paths"}}, // each call names its repository
	"memory":             {kind: inNode, program: "mcp-server-memory", fixed: []string{"MEMORY_FILE_PATH={home}/.mcp-memory.jsonl"}},
	"sequentialthinking": {kind: inNode, program: "mcp-server-sequential-thinking"},
	"time":               {kind: inPython, program: "mcp-server-time"},

	"airtable":         byKey("airtable-mcp-server@1.14.0", "airtable-mcp-server", "airtableApiKey", "AIRTABLE_API_KEY").taking("nodeenv", "NODE_ENV"),
	"apify":            byKey("@apify/actors-mcp-server@0.16.0", "actors-mcp-server", "apifyToken", "APIFY_TOKEN").taking("tools", "TOOLS"),
	"arxiv":            {pypi: "arxiv-mcp-server==0.8.2", program: "arxiv-mcp-server", args: []string{"--storage-path", "{storagePath}"}, needs: []string{"storagePath"}},
	"atlassian":        atlassian,
	"awsDocumentation": {pypi: "awslabs.aws-documentation-mcp-server==1.2.3", program: "awslabs.aws-documentation-mcp-server"},
	"brave":            byKey("@brave/brave-search-mcp-server@2.1.4", "brave-search-mcp-server", "apiKey", "BRAVE_API_KEY"),
	"browserbase":      byKey("@browserbasehq/mcp-server-browserbase@2.4.3", "mcp-server-browserbase", "apiKey", "BROWSERBASE_API_KEY").taking("projectId", "BROWSERBASE_PROJECT_ID", "geminiApiKey", "GEMINI_API_KEY"),
	"context7":         {npm: "@upstash/context7-mcp@4.1.1", program: "context7-mcp", env: map[string]string{"apiKey": "CONTEXT7_API_KEY"}},
	"desktopCommander": {npm: "@wonderwhy-er/desktop-commander@0.2.52", program: "desktop-commander", ignored: []string{"paths"}},
	"elevenlabs":       {pypi: "elevenlabs-mcp==0.12.2", program: "elevenlabs-mcp", env: map[string]string{"apiKey": "ELEVENLABS_API_KEY", "data": "ELEVENLABS_MCP_BASE_PATH"}, needs: []string{"apiKey"}},
	"exa":              byKey("exa-mcp-server@3.4.1", "exa-mcp-server", "apiKey", "EXA_API_KEY"),
	"firecrawl":        firecrawl,
	"github":           byKey("@modelcontextprotocol/server-github@2025.4.8", "mcp-server-github", "personalAccessToken", "GITHUB_PERSONAL_ACCESS_TOKEN"),
	"gitlab":           byKey("@modelcontextprotocol/server-gitlab@2025.4.25", "mcp-server-gitlab", "personalAccessToken", "GITLAB_PERSONAL_ACCESS_TOKEN").taking("url", "GITLAB_API_URL"),
	"googleMaps":       byKey("@modelcontextprotocol/server-google-maps@0.6.2", "mcp-server-google-maps", "googleMapsApiKey", "GOOGLE_MAPS_API_KEY"),
	"heroku":           byKey("@heroku/mcp-server@1.2.0", "heroku-mcp-server", "apiKey", "HEROKU_API_KEY"),
	"hubspot":          byKey("@hubspot/mcp-server@0.4.0", "mcp-hubspot", "apiKey", "PRIVATE_APP_ACCESS_TOKEN"),
	"mongodb":          byKey("mongodb-mcp-server@3.0.4", "mongodb-mcp-server", "mdbMcpConnectionString", "MDB_MCP_CONNECTION_STRING"),
	"notion":           byKey("@notionhq/notion-mcp-server@2.5.2", "notion-mcp-server", "internalIntegrationToken", "NOTION_TOKEN"),
	"openbnbAirbnb":    {npm: "@openbnb/mcp-server-airbnb@0.3.0", program: "mcp-server-airbnb"},
	"perplexityAsk":    byKey("@perplexity-ai/mcp-server@1.2.1", "perplexity-mcp", "perplexityApiKey", "PERPLEXITY_API_KEY"),
	"slack":            byKey("@modelcontextprotocol/server-slack@2025.4.25", "mcp-server-slack", "botToken", "SLACK_BOT_TOKEN").taking("teamId", "SLACK_TEAM_ID", "channelIds", "SLACK_CHANNEL_IDS"),
	"sqlite":           {pypi: "mcp-server-sqlite==2025.4.25", beside: "mcp<2", program: "mcp-server-sqlite", args: []string{"--db-path", "mcp.sqlite"}},
	"stripe":           byKey("@stripe/mcp@0.3.3", "mcp", "secretKey", "STRIPE_SECRET_KEY").with("--tools=all"),
	"tavily":           byKey("tavily-mcp@0.2.22", "tavily-mcp", "apiKey", "TAVILY_API_KEY"),
	"wikipedia":        {pypi: "wikipedia-mcp==2.0.1", program: "wikipedia-mcp"},
}

var atlassian = recipe{pypi: "mcp-atlassian==0.23.1", program: "mcp-atlassian", env: map[string]string{
	"confluenceUrl": "CONFLUENCE_URL", "confluenceUsername": "CONFLUENCE_USERNAME",
	"confluenceApiToken": "CONFLUENCE_API_TOKEN", "confluencePersonalToken": "CONFLUENCE_PERSONAL_TOKEN",
	"jiraUrl": "JIRA_URL", "jiraUsername": "JIRA_USERNAME",
	"jiraApiToken": "JIRA_API_TOKEN", "jiraPersonalToken": "JIRA_PERSONAL_TOKEN",
}}

var firecrawl = byKey("firecrawl-mcp@3.26.0", "firecrawl-mcp", "apiKey", "FIRECRAWL_API_KEY").taking(
	"url", "FIRECRAWL_API_URL",
	"retryMax", "FIRECRAWL_RETRY_MAX_ATTEMPTS", "retryDelay", "FIRECRAWL_RETRY_INITIAL_DELAY",
	"retryMaxDelay", "FIRECRAWL_RETRY_MAX_DELAY", "retryBackoffFactor", "FIRECRAWL_RETRY_BACKOFF_FACTOR",
	"creditWarningThreshold", "FIRECRAWL_CREDIT_WARNING_THRESHOLD", "creditCriticalThreshold", "FIRECRAWL_CREDIT_CRITICAL_THRESHOLD")

// byKey is a package of npm's index that needs one key, which it takes from a variable.
func byKey(npm, program, key, variable string) recipe {
	return recipe{npm: npm, program: program, env: map[string]string{key: variable}, needs: []string{key}}
}

// taking adds further keys, each before its variable.
func (r recipe) taking(pairs ...string) recipe {
	r.env = maps.Clone(r.env)
	for i := 0; i+1 < len(pairs); i += 2 {
		r.env[pairs[i]] = pairs[i+1]
	}
	return r
}

func (r recipe) with(args ...string) recipe {
	r.args = args
	return r
}

// takes reports whether the recipe knows the key.
func (r recipe) takes(key string) bool {
	return r.env[key] != "" || slices.Contains(r.args, "{"+key+"}") || slices.Contains(r.ignored, key)
}

// unknown says which servers there are, and how others are had.
func unknown(name string) error {
	return fmt.Errorf("server %.100q is not in this gateway's catalogue, which has %s; one with a public repository is had as github/OWNER/NAME with its runCmd",
		name, strings.Join(slices.Sorted(maps.Keys(catalogue)), ", "))
}
