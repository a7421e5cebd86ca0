"""The page in a browser: what is on it, and what the browser complained of."""

from functools import cache
from importlib.resources import files
from typing import Any, Literal, Protocol

from playwright.sync_api import Browser, ConsoleMessage, Locator

PATIENCE_MS = 15_000

MOST_SHIFT = 0.01
"""The layout shifts of a page in all, by the browser's measure: a tenth of what counts as good."""


class OpenedPage:
    """A tab. `complaints` are errors of scripts and of the policy, and failed calls are none."""

    def __init__(
        self,
        browser: Browser,
        url: str,
        size: tuple[int, int],
        scheme: str,
        token: str | None,
        *,
        wait: bool = True,
    ) -> None:
        dark: Literal["dark", "light"] = "dark" if scheme == "dark" else "light"
        self.context = browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme=dark,
            locale="en-GB",
            timezone_id="Europe/Berlin",
        )
        self.context.set_default_timeout(PATIENCE_MS)
        self.tab = self.context.new_page()
        self.complaints: list[str] = []
        self.tab.on("pageerror", lambda error: self.complaints.append(f"script: {error}"))
        self.tab.on("console", self._heard)
        self.tab.add_init_script(
            "window.violations = [];"
            "addEventListener('securitypolicyviolation', (e) =>"
            " window.violations.push(`${e.violatedDirective} ${e.blockedURI} ${e.sample}`));"
            # What moves long after a click may still come from it, on a busy machine.
            "window.shifts = []; let touched = Infinity;"
            "for (const each of ['pointerdown', 'keydown', 'input'])"
            " addEventListener(each, (e) => { touched = Math.min(touched, e.timeStamp); }, true);"
            "new PerformanceObserver((list) => { for (const each of list.getEntries())"
            " if (!each.hadRecentInput && each.startTime < touched) window.shifts.push([each.value, ...each.sources.map((one) =>"
            " one.node?.className || one.node?.nodeName || '?')]); })"
            ".observe({ type: 'layout-shift', buffered: true });"
        )
        self.tab.goto(url)
        if token is not None:
            self.enter_token(token)
        elif wait:
            self.tab.locator("main h1:visible").first.wait_for()

    def _heard(self, message: ConsoleMessage) -> None:
        # A response of 400 and above is said on the console too; the page handles those.
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.complaints.append(f"{message.type}: {message.text}")

    def go(self, hash_: str) -> None:
        """Open another view and wait for it."""
        self.tab.evaluate(
            """hash => {
                document.querySelector('main').replaceChildren();
                if (location.hash === hash) dispatchEvent(new HashChangeEvent('hashchange'));
                else location.hash = hash;
            }""",
            hash_,
        )
        self.tab.locator("main h1:visible").first.wait_for()

    def enter_token(self, token: str) -> None:
        """Answer the prompt for it."""
        self.tab.get_by_role("textbox", name="Token").fill(token)
        self.click("Continue")

    def click(self, name: str, *, within: Locator | None = None) -> None:
        """Press the button of this name."""
        (within or self.tab).get_by_role("button", name=name, exact=True).click()

    def see(self, text: str) -> Locator:
        """Wait until this text is shown."""
        found = self.tab.get_by_text(text).first
        found.wait_for()
        return found

    @property
    def text(self) -> str:
        return self.tab.locator("main").inner_text()

    def until(self, condition: str, argument: Any = None) -> None:
        """Wait for a JavaScript expression, or function of the argument, to be true."""
        self.tab.wait_for_function(condition, arg=argument)

    def violations(self) -> list[str]:
        """What the content security policy stopped."""
        found: list[str] = self.tab.evaluate("window.violations")
        return found

    def jumps(self) -> list[list[float | str]]:
        """What moved before anything was touched: how much, and which elements."""
        found: list[list[float | str]] = self.tab.evaluate("window.shifts")
        return found if sum(float(shift[0]) for shift in found) > MOST_SHIFT else []

    def faults_of_access(self) -> list[str]:
        """What axe-core finds: rule and element of each violation."""
        self.tab.evaluate(_axe())
        found: list[str] = self.tab.evaluate(
            """async () => {
                const { violations } = await axe.run(document, { resultTypes: ['violations'] });
                return violations.flatMap((each) => each.nodes.map((node) => `${each.id}: ${node.html.slice(0, 160)}`));
            }"""
        )
        return found

    def overflows(self) -> bool:
        """Whether the page scrolls sideways."""
        return bool(
            self.tab.evaluate(
                "document.documentElement.scrollWidth > document.documentElement.clientWidth"
            )
        )

    def close(self) -> None:
        self.complaints += [f"policy: {violation}" for violation in self.violations()]
        self.complaints += [f"layout jumps: {self.tab.url} {shift}" for shift in self.jumps()]
        self.context.close()


class PageOpener(Protocol):
    def __call__(
        self,
        url: str,
        size: tuple[int, int] = ...,
        scheme: str = ...,
        *,
        token: str | None = ...,
        wait: bool = ...,
    ) -> OpenedPage: ...


@cache
def _axe() -> str:
    return (files("axe_playwright_python") / "axe.min.js").read_text("utf-8")
