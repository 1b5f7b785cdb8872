import { text } from './text.js'
const show = t => { document.getElementById('text').textContent = t }
show(text)
if (import.meta.hot) import.meta.hot.accept('./text.js', m => show(m.text))
