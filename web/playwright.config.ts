// Tests of the console in Chromium. make browser gives them what test/server.ts reads from the environment.
import { defineConfig } from '@playwright/test'

export default defineConfig({
  testDir: 'test',
  fullyParallel: true,
  workers: 2,
  forbidOnly: true,
  // on a busy machine under the race detector a run takes minutes
  timeout: 20 * 60_000,
  expect: { timeout: 3 * 60_000 },
  reporter: 'list',
  outputDir: 'node_modules/.playwright',
  use: {
    launchOptions: { executablePath: process.env.CHROMIUM, args: ['--lang=en-US'] },
    actionTimeout: 3 * 60_000,
    screenshot: 'only-on-failure',
    viewport: { width: 1440, height: 1000 },
    locale: 'en-US',
    timezoneId: 'UTC',
  },
})
