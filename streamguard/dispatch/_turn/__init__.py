"""One member's turn, and the execution that holds several of them."""
