"""A desktop window with a model in it: Tk's thread never waits, neither for loading nor for text.

python examples/desktop.py
"""

import queue
import threading
import tkinter as tk

import edgellm


class App:
    """One window: a text that grows, a line to type in, a button that stops the reply."""

    def __init__(self, root: tk.Tk) -> None:
        self.root = root
        self.events: queue.SimpleQueue[str] = queue.SimpleQueue()  # from the worker; only Tk's thread touches widgets
        self.prompts: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.generation: edgellm.Generation | None = None
        self.closed = False

        root.title("EdgeLLM")
        self.text = tk.Text(root, wrap="word")
        self.text.pack(fill="both", expand=True)
        self.entry = tk.Entry(root)
        self.entry.pack(fill="x")
        self.entry.bind("<Return>", self.send)
        tk.Button(root, text="Stop", command=self.stop).pack()
        root.protocol("WM_DELETE_WINDOW", self.close)
        self.worker = threading.Thread(target=self.work)
        self.worker.start()
        self.poll()

    def work(self) -> None:
        """Load the model and answer prompts until the window is closed; runs in its own thread."""
        try:
            with edgellm.Model("smollm2-135m-instruct", n_ctx=2048) as model:
                self.events.put("(ready)\n")
                while (prompt := self.prompts.get()) is not None:
                    reply = model.chat([{"role": "user", "content": prompt}], max_tokens=200)
                    self.generation = reply
                    if self.closed:
                        break
                    for chunk in reply:
                        self.events.put(chunk)
                    self.events.put("\n")
        except edgellm.EdgeLLMError as error:
            self.events.put(f"({error})\n")

    def poll(self) -> None:
        """Show what has come, and look again soon."""
        while not self.events.empty():
            self.text.insert("end", self.events.get())
            self.text.see("end")
        self.root.after(30, self.poll)

    def send(self, _event: object = None) -> None:
        """Ask what was typed."""
        prompt = self.entry.get()
        self.entry.delete(0, "end")
        self.text.insert("end", f"\n> {prompt}\n")
        self.prompts.put(prompt)

    def stop(self) -> None:
        """End the reply that is being written; the model stays."""
        if self.generation is not None:
            self.generation.cancel()

    def close(self) -> None:
        """End the worker, then the window."""
        self.closed = True
        self.prompts.put(None)
        self.stop()
        self.worker.join()
        self.root.destroy()


def main() -> None:
    root = tk.Tk()
    App(root)
    root.mainloop()


if __name__ == "__main__":
    main()
