// Drives the page of google-adk in Debian's Chromium: one JSON line for each thing seen, the last one says "done".
// Arguments: the folder with node_modules/playwright-core, the address of the page, a folder for pictures.
import { createRequire } from 'node:module';
import { join } from 'node:path';

const [packages, address, pictures] = process.argv.slice(2);
const { chromium } = createRequire(join(packages, 'package.json'))('playwright-core');
const tell = (what, value) => console.log(JSON.stringify([what, value]));
const local = new URL(address).host;

const browser = await chromium.launch({
  executablePath: '/usr/bin/chromium',
  args: ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
    '--disable-component-update', '--disable-sync'],
});
try {
  const page = await browser.newPage({ viewport: { width: 1500, height: 950 } });
  page.setDefaultTimeout(30000);
  page.on('console', (m) => m.type() === 'error' && tell('console', `${m.text()} ${m.location().url}`));
  page.on('pageerror', (e) => tell('pageerror', String(e)));
  page.on('response', (r) => r.status() >= 400 && tell('status', [r.status(), r.request().method(), new URL(r.url()).pathname]));
  // Its fonts are elsewhere; nothing but this server is asked.
  await page.route((url) => url.host !== local, (r) => r.fulfill({ status: 200, contentType: 'text/css', body: '' }));
  const asked = (path) => page.waitForResponse((r) => new URL(r.url()).pathname.includes(path) && r.status() === 200);
  const tab = (name) => page.getByRole('tab', { name }).click();

  await page.goto(address);
  const box = page.locator('textarea').last();
  const say = async (text) => { await box.fill(text); await box.press('Enter'); };

  await page.locator('mat-icon:has-text("more_vert"):visible').first().click();
  await page.getByRole('menuitem', { name: 'Streaming' }).click();
  await page.keyboard.press('Escape');
  const streamed = asked('/run_sse');
  await say('write_note shopping');
  tell('sse', (await (await streamed).text()).split('\n\n').filter((frame) => frame.startsWith('data: ')).length);
  await page.getByText('write_note(').first().waitFor();
  await page.getByText('noted: shopping').first().waitFor();

  await say('send_money 5');
  await page.getByText('Confirmed').first().waitFor();
  await page.screenshot({ path: join(pictures, 'approval.png') });
  await page.locator('input[type=checkbox]').last().check();
  const resumed = asked('/run_sse');
  await page.getByRole('button', { name: 'Submit' }).last().click();
  tell('approved', (await (await resumed).text()).includes('sent 5'));

  await tab('State');
  await page.getByText('notes').first().waitFor();
  tell('tab', 'State');
  await tab('Artifacts');
  await page.getByText('shopping.txt').first().waitFor();
  tell('tab', 'Artifacts');
  await tab('Evals');
  await page.getByText('cases_of_the_house').first().waitFor();
  tell('tab', 'Evals');
  await tab('Info');
  await page.getByText('Traces', { exact: true }).click();
  await page.getByText('Total latency').first().waitFor();
  await page.getByText('generate_content obedient').first().waitFor();
  tell('tab', 'Traces');
  await page.screenshot({ path: join(pictures, 'traces.png') });
  await page.getByText('Events', { exact: true }).click();
  await page.getByText('send_money(').first().click();
  await page.locator('svg text', { hasText: 'teller' }).first().waitFor();
  tell('tab', 'Graph');
  await page.screenshot({ path: join(pictures, 'graph.png') });
  tell('done', true);
} finally {
  await browser.close();
}
