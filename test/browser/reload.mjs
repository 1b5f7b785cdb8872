// Opens a preview of the site in Chromium, changes a module in the sandbox, and
// wants to see the change without a reload of the page.
import { execFileSync } from 'node:child_process'
import { chromium } from 'playwright-core'

const { CHROMIUM, PREVIEW, SANDBOX, BERTH, SHOTS } = process.env
const patience = { timeout: 120_000 }
const shows = text => document.getElementById('text')?.textContent === text

const browser = await chromium.launch({ executablePath: CHROMIUM, args: ['--no-sandbox'], ...patience })
const page = await browser.newPage()
const sockets = []
let loads = 0
page.on('websocket', w => sockets.push(w.url()))
page.on('load', () => loads++)
const connected = page.waitForEvent('console', { predicate: m => m.text().includes('[vite] connected'), ...patience })
await page.goto(PREVIEW, { waitUntil: 'load', ...patience })
await page.waitForFunction(shows, 'before', patience)
await connected // before that a change would be for nobody
if (page.url().includes('berth_token')) throw new Error(`the token stays in the address: ${page.url()}`)
await page.screenshot({ path: `${SHOTS}/before.png` })

execFileSync(BERTH, ['cp', '-', `${SANDBOX}:/workspace/site/src/text.js`], { input: "export const text = 'after, without a reload'\n" })
await page.waitForFunction(shows, 'after, without a reload', patience)
await page.screenshot({ path: `${SHOTS}/after.png` })
if (loads !== 1) throw new Error(`the page was loaded ${loads} times`)
if (!sockets.some(s => s.startsWith('wss://'))) throw new Error(`there is no WebSocket over TLS: ${sockets}`)
await browser.close()
console.log('the page was changed in place')
