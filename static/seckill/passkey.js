// Offer to sign in with a passkey where the browser can, and say so if it came to nothing.
(function () {
  if (!window.PublicKeyCredential) return;
  window.allauth.webauthn.forms.loginForm({ ids: { login: "passkey_login", credential: "mfa_credential" } });
  document.getElementById("passkey_login").hidden = false;
  document.addEventListener("allauth.error", function (event) {
    event.preventDefault();
    document.getElementById("passkey_note").hidden = false;
  });
})();
