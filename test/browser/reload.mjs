// Opens a preview of the site in Chromium, changes a module in the sandbox, and
// wants to see the change without a reload of the page.
//
//	node reload.mjs URL SANDBOX BERTH SCREENSHOTS
import { execFileSync } from 'node:child_process'
import { chromium } from 'playwright-core'

const [, , url, id, berth, shots] = process.argv
const patience = { timeout: 60_000 }
const shows = text => document.getElementById('text')?.textContent === text

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ['--no-sandbox'] })
const page = await browser.newPage()
const sockets = []
let loads = 0
page.on('websocket', w => sockets.push(w.url()))
page.on('load', () => loads++)
await page.goto(url, { waitUntil: 'load' })
await page.waitForFunction(shows, 'before', patience)
if (page.url().includes('berth_token')) throw new Error(`the token stays in the address: ${page.url()}`)
await page.screenshot({ path: `${shots}/before.png` })

execFileSync(berth, ['cp', '-', `${id}:/workspace/site/src/text.js`], { input: "export const text = 'after, without a reload'\n" })
await page.waitForFunction(shows, 'after, without a reload', patience)
await page.screenshot({ path: `${shots}/after.png` })
if (loads !== 1) throw new Error(`the page was loaded ${loads} times`)
if (!sockets.some(s => s.startsWith('wss://'))) throw new Error(`there is no WebSocket over TLS: ${sockets}`)
await browser.close()
console.log('the page was changed in place')
